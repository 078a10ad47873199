// Panels of 32 rows of quantised weights as tiles of bf16, at the speed of memory. Included inside
// namespace deepinfer::cpu::amx, after bf16_weights.inc.h.
//
// A look-up gives a code's bf16 bits for the scale byte 0, and the scale byte is added to the
// exponent. Exponents wrap around in between, so this is exact while results are normal numbers
// (ScaleRange). Zero, which has no exponent, is entered as one that the smallest scale of the panel
// brings to 0: under that scale it is zero, under others at most 2^(9 - low) of the smallest code,
// and low is at least 64: nothing in a sum of floats. (Saturating additions give an exact zero, but
// run on one port: a quarter slower.)
//
// Every load is followed by two prefetches: of the load two groups ahead to the first-level cache,
// at the end of a row that of the next panel, and of the same columns of the next panel to the
// second-level cache.
//
// Tried without success: asking for the next panel byte by byte instead of by columns (fp8 67
// instead of 79 % of the read stream), without the first of the two prefetches (75), three groups
// ahead instead of two (no change). fp4: asking for the next panel in the order of memory:
// w1 or w2 alone, 8 rows, one thread, took 10 to 20 % less time or none, depending on where the
// compiler put the prefetches; whole experts took as long or 10 % longer, together with early
// prefetches of the rows of y too; w2 at 1 row from 12 % less to 6 % more, at 16 rows up to 10 %
// more. Half of its lines, bursts of 4 to 32 or the last-level cache as target: no faster.

constexpr int kPanel = 32;  // weight rows: two tiles, so that two chains hide the latency
constexpr int kGroupWords = kGroupTiles * kPanel * kTileColumns;  // [4 tiles][32 rows][32 words]

constexpr int kLeastFastScale = 64;  // see above
constexpr int kBias = 127 << 7;      // the exponent of 1.0f as it lies in bf16

#define DI_INLINE __attribute__((always_inline)) inline

struct ScaleRange {
  int low, high;
};

static inline int SmallestByte(IntVec v) {
  alignas(64) __m128i parts[4];
  _mm512_store_si512(parts, v);
  const __m128i part =
      _mm_min_epu8(_mm_min_epu8(parts[0], parts[1]), _mm_min_epu8(parts[2], parts[3]));
  const __m128i pairs = _mm_min_epu8(part, _mm_srli_epi16(part, 8));
  return _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_and_si128(pairs, _mm_set1_epi16(255)))) & 255;
}

// Of `rows` rows of n scales each.
static ScaleRange RangeOfScales(const uint8_t* scale, int64_t rows, int64_t stride, int64_t n) {
  IntVec low = _mm512_set1_epi8(-1), high = SetInt(0);
  for (int64_t r = 0; r < rows; ++r, scale += stride) {
    for (int64_t i = 0; i < n; i += 64) {
      const __mmask64 mask = n - i >= 64 ? ~0ull : (1ull << (n - i)) - 1;
      const IntVec bytes = _mm512_maskz_loadu_epi8(mask, scale + i);
      low = _mm512_mask_min_epu8(low, mask, low, bytes);
      high = _mm512_max_epu8(high, bytes);
    }
  }
  return {SmallestByte(low), 255 - SmallestByte(_mm512_xor_si512(high, _mm512_set1_epi8(-1)))};
}

// Always inline: g++ 12 drops calls of functions that do nothing else.
static DI_INLINE void Prefetch(const uint8_t* next_loads, const uint8_t* next_panel) {
  _mm_prefetch(reinterpret_cast<const char*>(next_loads), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(next_panel), _MM_HINT_T1);
}

// How far from a load the bytes lie that are asked for with it.
struct Ahead {
  int64_t near, far;  // for the first- and the second-level cache
  int64_t next_near;  // `near` in the last kNearGroups groups of a row: the first of the next panel
  int64_t groups_left;  // of a row

  static constexpr int kNearGroups = 2;

  DI_INLINE void StartGroup() {
    if (groups_left-- == kNearGroups) near = next_near;
  }
};

// For a panel at `row` whose groups are group_bytes of a row; `next_row` of `next` follows.
static inline Ahead PrefetchAhead(const WeightView& w, int64_t row, const WeightView& next,
                                  int64_t next_row, int64_t group_bytes) {
  const int64_t groups = w.cols / kGroup, near = Ahead::kNearGroups * group_bytes;
  const int64_t far =
      (next.data + next_row * next.row_stride_bytes) - (w.data + row * w.row_stride_bytes);
  const int64_t next_near = far + near - groups * group_bytes;
  return {groups < Ahead::kNearGroups ? next_near : near, far, next_near, groups};
}

static inline int32_t LoadInt(const uint8_t* p) {
  int32_t value;
  memcpy(&value, p, 4);
  return value;
}

// Four scale bytes, byte i in the exponents of words 8i ... 8i + 7.
static inline IntVec ExponentsOf4(const uint8_t* scale) {
  const IntVec spread = _mm512_set_epi64(0x8003800380038003, 0x8003800380038003, 0x8002800280028002,
                                         0x8002800280028002, 0x8001800180018001, 0x8001800180018001,
                                         0x8000800080008000, 0x8000800080008000);
  return _mm512_slli_epi16(_mm512_shuffle_epi8(SetInt(LoadInt(scale)), spread), 7);
}

// fp4: the tile t of a group holds the t-th four bits of every 16. A word look-up reads five bits
// of its index, and the table holds the sixteen values twice.
struct Fp4Panel {
  static constexpr bool kReadsAhead = true;  // a byte past a group
  const uint8_t *data, *scale;               // of the next row
  const uint8_t* next_scales;                // of the panel after this one
  int64_t stride, scale_stride;
  Ahead ahead;
  IntVec values;

  // False: these scales need the general decoder.
  bool Open(const WeightView& w, int64_t row, const WeightView& next, int64_t next_row) {
    data = w.data + row * w.row_stride_bytes;
    scale = w.scale + row * w.scale_stride_bytes;
    stride = w.row_stride_bytes, scale_stride = w.scale_stride_bytes;
    next_scales = next.scale + next_row * next.scale_stride_bytes;
    ahead = PrefetchAhead(w, row, next, next_row, kGroup / 2);
    const ScaleRange range = RangeOfScales(scale, kPanel, scale_stride, w.cols / 32);
    const auto zero = static_cast<int16_t>(-(range.low << 7));
    const __m256i codes = _mm256_setr_epi16(
        zero, 0x3f00 - kBias, 0x3f80 - kBias, 0x3fc0 - kBias, 0x4000 - kBias, 0x4040 - kBias,
        0x4080 - kBias, 0x40c0 - kBias, static_cast<int16_t>(zero ^ INT16_MIN),
        INT16_MIN ^ (0x3f00 - kBias), INT16_MIN ^ (0x3f80 - kBias), INT16_MIN ^ (0x3fc0 - kBias),
        INT16_MIN ^ (0x4000 - kBias), INT16_MIN ^ (0x4040 - kBias), INT16_MIN ^ (0x4080 - kBias),
        INT16_MIN ^ (0x40c0 - kBias));
    values = _mm512_broadcast_i64x4(codes);
    return range.low >= kLeastFastScale && range.high + 2 <= 254;
  }

  DI_INLINE void Store(IntVec codes, IntVec exponents, uint16_t* out) const {
    _mm512_store_si512(out, _mm512_add_epi16(_mm512_permutexvar_epi16(codes, values), exponents));
  }

  // Four rows of a group. The load shifted by a byte saves two shifts of the vector, but reads a
  // byte past the group: not in the last one of a row.
  template <bool kLast>
  DI_INLINE void Decode4(uint16_t* out) {
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r, out += kTileColumns) {
      const IntVec x = _mm512_loadu_si512(data);
      const IntVec y = kLast ? _mm512_srli_epi16(x, 8) : _mm512_loadu_si512(data + 1);
      Prefetch(data + ahead.near, data + ahead.far);
      const IntVec exponents = ExponentsOf4(scale);
      Store(x, exponents, out);
      Store(_mm512_srli_epi16(x, 4), exponents, out + 2 * kTileWords);
      Store(y, exponents, out + 4 * kTileWords);
      Store(_mm512_srli_epi16(y, 4), exponents, out + 6 * kTileWords);
      data += stride, scale += scale_stride;
    }
  }

  // After the last row of a group.
  DI_INLINE void NextGroup() {
    data += 64 - kPanel * stride;
    scale += 4 - kPanel * scale_stride;
  }
  // Before the first: asks for as many scales of the next panel as a group has.
  DI_INLINE void StartGroup() {
    ahead.StartGroup();
    _mm_prefetch(reinterpret_cast<const char*>(next_scales), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(next_scales + 64), _MM_HINT_T1);
    next_scales += 128;
  }
  bool Sound() const { return true; }
};

// The words of the codes without their sign, less the exponent of 1; code 0 stays 0.
static constexpr Fp8Tables MakeFp8Words(bool halved) {
  constexpr uint8_t kHalved[16] = {0, 0, 2, 4, 4, 4, 6, 8, 8, 8, 10, 12, 12, 12, 14, 16};
  Fp8Tables t{};
  for (int code = 1; code < 128; ++code) {
    const int c = halved && code < 16 ? kHalved[code] : code;
    if (c == 0) continue;
    const int word = (kFp8Tables.high[c] << 8 | kFp8Tables.low[c]) - kBias;
    t.low[code] = static_cast<uint8_t>(word & 255);
    t.high[code] = static_cast<uint8_t>(word >> 8 & 255);
  }
  return t;
}

alignas(64) static constexpr Fp8Tables kFp8Words[2] = {MakeFp8Words(false), MakeFp8Words(true)};

// fp8: unpacking bytes to words takes 8 bytes of every 16 to the first, 8 to the second of two
// tiles. One row of scales serves the whole panel.
struct Fp8Panel {
  static constexpr bool kReadsAhead = false;
  const uint8_t *data, *scale;
  int64_t stride;
  Ahead ahead;
  IntVec low0, low1, high0, high1, exponents0, exponents1;
  IntVec nan;  // the sign bit of a byte is set where a NaN was seen

  bool Open(const WeightView& w, WeightDecode decode, int64_t row, const WeightView& next,
            int64_t next_row) {
    data = w.data + row * w.row_stride_bytes;
    stride = w.row_stride_bytes;
    ahead = PrefetchAhead(w, row, next, next_row, kGroup);
    scale = ScalesAt(w, row, 0);
    const ScaleRange range = RangeOfScales(scale, 1, 0, w.cols / 32);
    const bool halved = decode == WeightDecode::kHalvedFp8;
    const Fp8Tables& words = kFp8Words[halved ? 1 : 0];
    const __mmask64 zeros = halved ? 3 : 1;  // codes that are zero
    const int zero = -(range.low << 7);
    low0 = _mm512_mask_set1_epi8(LoadTable(words.low), zeros, static_cast<char>(zero & 255));
    high0 = _mm512_mask_set1_epi8(LoadTable(words.high), zeros, static_cast<char>(zero >> 8));
    low1 = LoadTable(words.low + 64), high1 = LoadTable(words.high + 64);
    nan = SetInt(0);
    return w.dtype == DType::kFp8Tile32 && (row + w.scale_row0) % 32 == 0 &&
           range.low >= kLeastFastScale && range.high + 8 <= 254;
  }

  // 64 columns of a row.
  DI_INLINE void Decode(const uint8_t* p, IntVec exponents, uint16_t* out) {
    const IntVec c = _mm512_loadu_si512(p);
    // Adding 1 carries into the sign only where all bits below it are set.
    nan = _mm512_ternarylogic_epi32(nan, c, _mm512_add_epi8(c, _mm512_set1_epi8(1)), 0xf6);
    const IntVec low = _mm512_permutex2var_epi8(low0, c, low1);
    const IntVec magnitude = _mm512_permutex2var_epi8(high0, c, high1);
    const IntVec sign = _mm512_set1_epi8(INT8_MIN);
    const IntVec high = _mm512_ternarylogic_epi32(magnitude, c, sign, 0x78);  // ^ (c & sign)
    _mm512_store_si512(out, _mm512_add_epi16(_mm512_unpacklo_epi8(low, high), exponents));
    _mm512_store_si512(out + 2 * kTileWords,
                       _mm512_add_epi16(_mm512_unpackhi_epi8(low, high), exponents));
  }

  template <bool kLast>
  DI_INLINE void Decode4(uint16_t* out) {
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r, out += kTileColumns) {
      Prefetch(data + ahead.near, data + ahead.far);
      Prefetch(data + ahead.near + 64, data + ahead.far + 64);
      Decode(data, exponents0, out);
      Decode(data + 64, exponents1, out + 4 * kTileWords);
      data += stride;
    }
  }

  DI_INLINE void NextGroup() { data += kGroup - kPanel * stride; }
  DI_INLINE void StartGroup() {
    const IntVec first = _mm512_set_epi64(
        0x8001800180018001, 0x8001800180018001, 0x8001800180018001, 0x8001800180018001,
        0x8000800080008000, 0x8000800080008000, 0x8000800080008000, 0x8000800080008000);
    ahead.StartGroup();
    const IntVec bytes = SetInt(LoadInt(scale));
    exponents0 = _mm512_slli_epi16(_mm512_shuffle_epi8(bytes, first), 7);
    const IntVec second = _mm512_add_epi16(first, _mm512_set1_epi16(2));
    exponents1 = _mm512_slli_epi16(_mm512_shuffle_epi8(bytes, second), 7);
    scale += 4;
  }
  bool Sound() const { return _mm512_test_epi8_mask(nan, _mm512_set1_epi8(INT8_MIN)) == 0; }
};

// A whole group, [4 tiles][32 rows][32 words], `last` in its row or not.
template <class Panel>
static DI_INLINE void DecodeGroup(Panel* panel, bool last, uint16_t* out) {
  panel->StartGroup();
  for (int r = 0; r < kPanel; r += 4, out += 4 * kTileColumns) {
    if (last) {
      panel->template Decode4<true>(out);
    } else {
      panel->template Decode4<false>(out);
    }
  }
  panel->NextGroup();
}

// Any rows, scales and codes, and any number of columns: the same words, but for an exact zero.
struct AnyPanel {
  const WeightView& w;
  WeightDecode decode;
  int64_t row, n_out;
  Order order;

  // Columns [c, c + n), n at most 128, c a multiple of 32. Rows beyond n_out hold anything.
  void Decode(int64_t c, int64_t n, uint16_t* out) const {
    alignas(64) uint16_t words[kGroup] = {};
    for (int64_t r = 0; r < n_out; ++r, out += kTileColumns) {
      DecodeToBf16(w, decode, row + r, c, n, words);
      IntVec group[kGroupTiles];
      for (int t = 0; t < kGroupTiles; ++t) {
        group[t] = _mm512_load_si512(words + t * kTileColumns);
      }
      Reorder(order, group);
      for (int t = 0; t < kGroupTiles; ++t) {
        _mm512_store_si512(out + t * 2 * kTileWords, group[t]);
      }
    }
  }
};
