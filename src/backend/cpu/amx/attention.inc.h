// Attention on tiles: bf16 queries, packed rows, weights of the value sum rounded to bf16. Included
// inside namespace deepinfer::cpu::amx, after bf16_rows.inc.h, tile_registers.inc.h and
// attention_rows.inc.h.
//
// Up to 64 heads of one row share every decoded block of 64 rows. Scores come as [row, head]: the
// rows are tiles as they were decoded, the running softmax of 16 heads is one vector, and no sum
// crosses lanes. The value sum wants rows in pairs, which two unpacks make. Every score has one
// accumulator over ascending columns, every output one over ascending rows: neither the threads nor
// the heads beside it change a bit.
//
// Reached, 64 heads and 640 rows on one core: 0.16 ms a row, 26 % of the tile rate of the same run.
// Bound, with selected rows from far away: decoding (46 %, nearly all of it compressed rows: the
// first place to look), value sum 18 %, scores 16 %, softmax 8 %, pairing 6 %. The sums (128 KiB)
// pass through the tiles once a block, because each block may raise a maximum; heads without a new
// maximum are not rescaled.

constexpr int kMostHeadTiles = kAttentionHeads / 16;
constexpr int kHalfBlock = 32;  // rows decoded at a time: 34 KiB stay in the first-level cache
static_assert(kAttentionBlock == 2 * kHalfBlock, "a block is decoded in two halves");

// Where the heads of one row keep their state in the thread's scratch (AttentionScratchFloats).
// n: head_dim / 32.
struct HeadsState {
  uint16_t* q;                  // [head tiles][n] tiles of [16 pairs of columns][16 heads][2]
  uint16_t* rows;               // [kHalfBlock] decoded rows, row_stride apart
  uint16_t* pairs;              // [2 halves][n][2] tiles of [16 pairs of rows][16 columns][2]
  uint16_t* p;                  // [head tiles][2 halves] tiles of [16 heads][32 rows]
  float* scores;                // [kAttentionBlock][kAttentionHeads]
  float* sums;                  // [head tiles][n][2] tiles of [16 heads][16 columns]
  float *top, *total, *shrink;  // [kAttentionHeads]
  int64_t n, row_stride;
};

static inline HeadsState PlaceHeads(float* scratch, int64_t dim) {
  HeadsState s;
  s.n = dim / 32;
  s.row_stride = dim + 32;  // a multiple of 4 KiB would put rows into the same cache sets
  s.sums = scratch;
  s.scores = s.sums + kAttentionHeads * dim;
  s.top = s.scores + kAttentionBlock * kAttentionHeads;
  s.total = s.top + kAttentionHeads;
  s.shrink = s.total + kAttentionHeads;
  s.q = reinterpret_cast<uint16_t*>(s.shrink + kAttentionHeads);
  s.pairs = s.q + kAttentionHeads * dim;
  s.p = s.pairs + kAttentionBlock * dim;
  s.rows = s.p + kAttentionHeads * kAttentionBlock;
  return s;
}

// ---- operands ----

// Row pairs of half a block: of every 32 columns, columns 0-3, 8-11, 16-19, 24-27 go to the first
// tile, the others to the second, which is how unpacking leaves them.
static inline void PairRows(const HeadsState& s, uint16_t* pairs) {
  for (int64_t i = 0; i < kHalfBlock; i += 2) {
    const uint16_t *even = s.rows + i * s.row_stride, *odd = even + s.row_stride;
    uint16_t* to = pairs + 16 * i;
    for (int64_t k = 0; k < s.n; ++k, to += 2 * kTileWords) {
      const __m512i a = _mm512_loadu_si512(even + 32 * k), b = _mm512_loadu_si512(odd + 32 * k);
      _mm512_storeu_si512(to, _mm512_unpacklo_epi16(a, b));
      _mm512_storeu_si512(to + kTileWords, _mm512_unpackhi_epi16(a, b));
    }
  }
}

// Rows [first, first + n) of the list; the others of the half block are zero.
static inline void DecodeHalf(const AttentionArgs& a, int64_t r, const RowList& list, int64_t first,
                              int64_t n, const HeadsState& s) {
  for (int64_t i = 0; i < n; ++i) {
    RowToBf16(FormatOfListed(a, list, first + i), FindListed(a, r, list, first + i), a.head_dim,
              s.rows + i * s.row_stride);
  }
  for (int64_t i = n; i < kHalfBlock; ++i) {
    memset(s.rows + i * s.row_stride, 0, static_cast<size_t>(a.head_dim) * 2);
  }
}

// ---- products ----

// scores [32 rows][16 * kHeadTiles heads] = rows . q, one or two tiles of heads.
template <int kHeadTiles>
static inline void ScoreTiles(const HeadsState& s, int64_t tile, float* scores) {
  ProductTiles<kHeadTiles>(s.rows, s.row_stride, s.q + tile * s.n * kTileWords, s.n, scores,
                           kAttentionHeads);
}

// sums += p . rows of 32 columns and one or two tiles of heads; the first block starts from zero.
template <int kHeadTiles>
static inline void ValueTiles(const uint16_t* p, const uint16_t* pairs, int64_t halves,
                              int64_t pairs_stride, bool first, float* sums, int64_t sums_stride) {
  float* second = sums + sums_stride;
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + 256, 64);
    if (kHeadTiles == 2) {
      _tile_loadd(2, second, 64);
      _tile_loadd(3, second + 256, 64);
    }
  }
  for (int64_t half = 0; half < halves; ++half, pairs += pairs_stride, p += kTileWords) {
    _tile_loadd(4, p, 64);
    _tile_loadd(6, pairs, 64);
    _tile_loadd(7, pairs + kTileWords, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (kHeadTiles == 1) continue;
    _tile_loadd(5, p + 2 * kTileWords, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  if (kHeadTiles == 1) return;
  _tile_stored(2, second, 64);
  _tile_stored(3, second + 256, 64);
}

// All columns of all heads; `halves` halves of the block hold rows.
static inline void AddValues(const HeadsState& s, int64_t n_tiles, int64_t halves, bool first) {
  const int64_t pairs_stride = 2 * s.n * kTileWords, sums_stride = s.n * 2 * 256;
  Fence();
  for (int64_t k = 0; k < s.n; ++k) {
    const uint16_t* pairs = s.pairs + 2 * k * kTileWords;
    for (int64_t t = 0; t < n_tiles; t += 2) {
      const uint16_t* p = s.p + 2 * t * kTileWords;
      float* sums = s.sums + (t * s.n + k) * 2 * 256;
      if (t + 1 < n_tiles) {
        ValueTiles<2>(p, pairs, halves, pairs_stride, first, sums, sums_stride);
      } else {
        ValueTiles<1>(p, pairs, halves, pairs_stride, first, sums, sums_stride);
      }
    }
  }
}

// ---- softmax ----

// Two rows of weights, each rounded to bf16, as pairs. NaNs here come from bf16 values: rounding
// cannot carry into their sign.
static inline IntVec RoundToPairs(Vec even, Vec odd) {
  const IntVec one = SetInt(1), half = SetInt(0x7fff), upper = SetInt(-65536);
  const IntVec a = Bits(even), b = Bits(odd);
  const IntVec low = AddInt(AddInt(a, half), And(ShiftRight<16>(a), one));
  const IntVec high = AddInt(AddInt(b, half), And(ShiftRight<16>(b), one));
  return _mm512_ternarylogic_epi32(ShiftRight<16>(low), high, upper, 0xf8);  // low | high & upper
}

// One block of the running softmax of the 16 heads of a tile. Only the first n rows have scores.
static inline void AddBlock(const HeadsState& s, int64_t tile, int64_t n, float scale) {
  float* scores = s.scores + 16 * tile;
  const int64_t rows = (n + kHalfBlock - 1) / kHalfBlock * kHalfBlock;
  for (int64_t i = n; i < rows; ++i) Store(scores + i * kAttentionHeads, Set(-INFINITY));
  const Vec old_top = Load(s.top + 16 * tile), factor = Set(scale);
  Vec top = old_top, top_odd = old_top;
  for (int64_t i = 0; i < rows; i += 2) {
    float *even = scores + i * kAttentionHeads, *odd = even + kAttentionHeads;
    const Vec a = Load(even) * factor, b = Load(odd) * factor;
    Store(even, a);
    Store(odd, b);
    top = Max(a, top);
    top_odd = Max(b, top_odd);
  }
  top = Max(top, top_odd);
  Vec sum_even = Zero(), sum_odd = Zero();
  for (int64_t i = 0; i < rows; i += kHalfBlock) {
    IntVec pairs[16];
    for (int j = 0; j < 16; ++j) {
      const float* even = scores + (i + 2 * j) * kAttentionHeads;
      const Vec a = Exp(Load(even) - top), b = Exp(Load(even + kAttentionHeads) - top);
      sum_even = sum_even + a;
      sum_odd = sum_odd + b;
      pairs[j] = RoundToPairs(a, b);
    }
    Transpose(pairs);
    uint16_t* p = s.p + (2 * tile + i / kHalfBlock) * kTileWords;
    for (int j = 0; j < 16; ++j) _mm512_storeu_si512(p + 32 * j, pairs[j]);
  }
  const Vec shrink = Exp(old_top - top);
  Store(s.shrink + 16 * tile, shrink);
  Store(s.total + 16 * tile, Load(s.total + 16 * tile) * shrink + (sum_even + sum_odd));
  Store(s.top + 16 * tile, top);
}

// sums *= shrink for the heads whose maximum has grown; for the others the factor is 1.
static inline void ShrinkSums(const HeadsState& s, int64_t n_heads) {
  for (int64_t h = 0; h < n_heads; ++h) {
    if (s.shrink[h] == 1.0f) continue;
    const Vec factor = Set(s.shrink[h]);
    float* sums = s.sums + h / 16 * s.n * 2 * 256 + h % 16 * 16;
    for (int64_t k = 0; k < 2 * s.n; ++k) Store(sums + 256 * k, Load(sums + 256 * k) * factor);
  }
}

// ---- one row ----

// o = sums / (total + exp(sink - top)); the quotient by way of 1 / x is within 1.5 ulp of fp32 and
// rounded to bf16 here.
static inline void WriteHeads(const AttentionArgs& a, const HeadsState& s, int64_t r,
                              int64_t first_head, int64_t n_heads) {
  const IntVec low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const IntVec high = AddInt(low, SetInt(8));
  for (int64_t h = 0; h < n_heads; ++h) {
    const float sink = LoadF32(a.sink + 4 * (first_head + h));
    const Vec total = Set(s.total[h]) + Exp(Set(sink - s.top[h]));
    const Vec factor = Set(1.0f) / total;
    const float* sums = s.sums + h / 16 * s.n * 2 * 256 + h % 16 * 16;
    float* o = a.o + (r * a.heads + first_head + h) * a.head_dim;
    for (int64_t k = 0; k < s.n; ++k, sums += 512, o += 32) {
      const Vec first = RoundBf16(Load(sums) * factor),
                second = RoundBf16(Load(sums + 256) * factor);
      Store(o, _mm512_permutex2var_ps(first, low, second));
      Store(o + 16, _mm512_permutex2var_ps(first, high, second));
    }
  }
}

// n_tiles tiles of 16 heads of row r, from head first_head on; heads beyond the last are computed
// as if q were 0.
static void AttendHeads(const AttentionArgs& a, int64_t r, int64_t first_head, int64_t n_tiles,
                        float* scratch) {
  const HeadsState s = PlaceHeads(scratch, a.head_dim);
  const int64_t n_heads = Smaller(16 * n_tiles, a.heads - first_head);
  const RowList list = ListRows(a, r);
  PackTiles(a.q + (r * a.heads + first_head) * a.head_dim, n_heads, a.head_dim, s.q);
  for (int64_t h = 0; h < 16 * n_tiles; ++h) s.top[h] = -1e30f, s.total[h] = 0;
  for (int64_t first = 0; first < list.n; first += kAttentionBlock) {
    const int64_t n = Smaller(kAttentionBlock, list.n - first);
    const int64_t halves = (n + kHalfBlock - 1) / kHalfBlock;
    for (int64_t half = 0; half < halves; ++half) {
      const int64_t begin = half * kHalfBlock;
      DecodeHalf(a, r, list, first + begin, Smaller(kHalfBlock, n - begin), s);
      PrefetchListed(a, r, list, first + begin + kHalfBlock, kHalfBlock);
      Fence();
      float* scores = s.scores + begin * kAttentionHeads;
      int64_t t = 0;
      for (; t + 1 < n_tiles; t += 2) ScoreTiles<2>(s, t, scores + 16 * t);
      if (t < n_tiles) ScoreTiles<1>(s, t, scores + 16 * t);
      Fence();
      PairRows(s, s.pairs + half * 2 * s.n * kTileWords);
    }
    for (int64_t t = 0; t < n_tiles; ++t) AddBlock(s, t, n, a.scale);
    if (first > 0) ShrinkSums(s, n_heads);
    AddValues(s, n_tiles, halves, first == 0);
    Fence();
  }
  WriteHeads(a, s, r, first_head, n_heads);
}
