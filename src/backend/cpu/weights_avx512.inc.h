// Checkpoint weights to floats, AVX-512. Included inside namespace deepinfer::cpu::avx512, after
// row_codec.inc.h.
//
// Decoders of quantised weights take n columns, a multiple of 32 that share one scale each, and
// write n floats rounded up to a multiple of 64. Of the tensor they read exactly those columns.

// The bytes of the bf16 value of every e4m3 magnitude, for vpermi2b: exact, subnormals and NaN
// included.
struct Fp8Tables {
  uint8_t low[128], high[128];
};

static constexpr Fp8Tables MakeFp8Tables() {
  Fp8Tables t{};
  for (int code = 1; code < 128; ++code) {
    int exponent = code >> 3, significand = code & 7;  // value = significand * 2^(exponent - 10)
    if (exponent > 0) significand += 8;
    if (exponent == 0) exponent = 1;
    for (; significand < 8; --exponent) significand *= 2;
    const int bits = code == 127 ? 0x7fc0 : (exponent + 120) << 7 | (significand - 8) << 4;
    t.low[code] = static_cast<uint8_t>(bits & 255);
    t.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return t;
}

// Where the codes of 64 columns must lie so that unpacking bytes to words, then words to floats,
// ends in column order.
struct Fp8Order {
  uint8_t column[64];
};

static constexpr Fp8Order MakeFp8Order() {
  Fp8Order order{};
  for (int i = 0; i < 64; ++i) {
    const int lane = i / 16, word = i % 8,
              upper = i / 8 % 2;  // word `word` of the lower or upper half of a 128-bit lane
    order.column[i] = static_cast<uint8_t>(32 * upper + 16 * (word % 2) + 4 * lane + word / 2);
  }
  return order;
}

alignas(64) static constexpr Fp8Tables kFp8Tables = MakeFp8Tables();
alignas(64) static constexpr Fp8Order kFp8Order = MakeFp8Order();

static inline __m512i LoadTable(const uint8_t* p) { return _mm512_load_si512(p); }

// Twice the e4m3 rounding of half of every value, as codes. Only magnitudes below code 16 can
// change: they are code * 2^-9, and half of an odd code is a tie of the subnormal grid, so it goes
// to the nearest multiple of 4.
static inline __m512i HalveFp8(__m512i codes) {
  const __m512i table =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 2, 4, 4, 4, 6, 8, 8, 8, 10, 12, 12, 12, 14, 16));
  const __mmask64 small = _mm512_testn_epi8_mask(codes, _mm512_set1_epi8(0x70));
  const __m512i halved = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
  const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
  return _mm512_mask_blend_epi8(small, codes, _mm512_or_si512(halved, sign));
}

struct Fp8Decoder {
  __m512i order, low[2], high[2];
};

static inline Fp8Decoder MakeFp8Decoder() {
  return {LoadTable(kFp8Order.column),
          {LoadTable(kFp8Tables.low), LoadTable(kFp8Tables.low + 64)},
          {LoadTable(kFp8Tables.high), LoadTable(kFp8Tables.high + 64)}};
}

// 64 codes to floats in column order, the first 32 times scale0, the others times scale1.
static inline void DecodeFp8Codes(const Fp8Decoder& d, __m512i codes, Vec scale0, Vec scale1,
                                  Vec (&y)[4]) {
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i upper = SetInt(static_cast<int32_t>(0xffff0000));
  const __m512i c = _mm512_permutexvar_epi8(d.order, codes);
  const __m512i low = _mm512_permutex2var_epi8(d.low[0], c, d.low[1]);  // ignores the sign bit
  __m512i high = _mm512_permutex2var_epi8(d.high[0], c, d.high[1]);
  high = _mm512_ternarylogic_epi32(high, c, sign, 0xf8);  // high | (c & sign)
  const __m512i first = _mm512_unpacklo_epi8(low, high), second = _mm512_unpackhi_epi8(low, high);
  y[0] = FromBits(ShiftLeft<16>(first)) * scale0;
  y[1] = FromBits(And(first, upper)) * scale0;
  y[2] = FromBits(ShiftLeft<16>(second)) * scale1;
  y[3] = FromBits(And(second, upper)) * scale1;
}

static inline void DecodeFp8(const uint8_t* codes, const uint8_t* scale, int64_t n, bool halved,
                             float* y) {
  const Fp8Decoder decoder = MakeFp8Decoder();
  for (int64_t k = 0; k < n; k += 64) {
    const bool whole = n - k >= 64;
    __m512i c = _mm512_maskz_loadu_epi8(whole ? ~0ull : 0xffffffffull, codes + k);
    if (halved) c = HalveFp8(c);
    const Vec scale0 = Set(DecodeUe8m0(scale[k / 32]));
    Vec values[4];
    DecodeFp8Codes(decoder, c, scale0, whole ? Set(DecodeUe8m0(scale[k / 32 + 1])) : Zero(),
                   values);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) Store(y + k + 16 * i, values[i]);
  }
}

// Two codes a byte: every 32-bit lane gets its byte, shifted by 4 for odd columns, and the register
// look-up reads only the lower four bits.
static inline void DecodeFp4(const uint8_t* codes, const uint8_t* scale, int64_t n, float* y) {
  const Vec values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                    -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  const __m512i first = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m512i second = AddInt(first, SetInt(8));
  const __m512i shift = _mm512_set1_epi64(4ll << 32);
  for (int64_t k = 0; k < n; k += 32) {
    const __m512i bytes =
        _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + k / 2)));
    const Vec scaled = values * Set(DecodeUe8m0(scale[k / 32]));
    const __m512i c0 = _mm512_srlv_epi32(_mm512_permutexvar_epi8(first, bytes), shift);
    const __m512i c1 = _mm512_srlv_epi32(_mm512_permutexvar_epi8(second, bytes), shift);
    Store(y + k, _mm512_permutexvar_ps(c0, scaled));
    Store(y + k + 16, _mm512_permutexvar_ps(c1, scaled));
  }
}

// Is one of n bytes 255?
static inline bool HasByte255(const uint8_t* p, int64_t n) {
  const __m512i all = _mm512_set1_epi8(-1);
  for (int64_t i = 0; i < n; i += 64) {
    const __mmask64 mask = n - i >= 64 ? ~0ull : (1ull << (n - i)) - 1;
    if (_mm512_mask_cmpeq_epi8_mask(mask, _mm512_maskz_loadu_epi8(mask, p + i), all) != 0)
      return true;
  }
  return false;
}

// ---- 64 whole columns at a time, for products of few rows ----

constexpr int kStep = 64;

// Codes of kStep columns times their scales.
static inline void LoadFp8Columns(const Fp8Decoder& d, const uint8_t* codes, const float* scale,
                                  Vec (&y)[4]) {
  DecodeFp8Codes(d, _mm512_loadu_si512(codes), Set(scale[0]), Set(scale[1]), y);
}
