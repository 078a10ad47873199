// Scores of a block of index keys, on tiles. Included inside namespace deepinfer::cpu::amx, after
// bf16_rows.inc.h and tile_registers.inc.h, before index_select.inc.h. Offers what
// index_scores.inc.h offers.
//
// Dot products come as [key, head]: keys are tiles as they were decoded. A key's sum over heads is
// one vector per 16 heads, heads ascending, and its lanes are added at the end, 16 keys at a time.
// Bound: rounding every product to bf16 twice (24 instructions a key and row beside 8 cycles of
// tile products), not the tiles.
// Reached, 32 heads of 128, on one core: 31 ns a key for one row, most of it decoding; 14 where six
// rows share keys, 0.60 Tflop/s, 62 % of the tile rate of that (slow) phase.

constexpr int kKeyTile = 32;  // keys multiplied at a time: two tiles

// Keys and queries in the thread's scratch. n: dim / 32; heads are filled up to tiles with zeros.
struct IndexOperands {
  uint16_t* keys;  // [kIndexKeyBlock] decoded, key_stride apart
  uint16_t* q;     // [kIndexGroupRows][head_tiles][n] tiles of [16 pairs of columns][16 heads][2]
  float* weights;  // [kIndexGroupRows][16 * head_tiles]
  int64_t n, head_tiles, key_stride;
};

static inline IndexOperands PlaceOperands(const IndexSelectArgs& a, uint8_t* scratch) {
  IndexOperands o;
  o.n = a.dim / 32;
  o.head_tiles = (a.heads + 15) / 16;
  o.key_stride = a.dim + 32;
  o.keys = reinterpret_cast<uint16_t*>(scratch);
  o.q = o.keys + kIndexKeyBlock * o.key_stride;
  o.weights = reinterpret_cast<float*>(o.q + kIndexGroupRows * o.head_tiles * 16 * a.dim);
  return o;
}

static inline void PrepareRow(const IndexSelectArgs& a, int64_t r, int64_t i,
                              const IndexOperands& o) {
  const float* q = a.q + r * a.heads * a.dim;
  PackTiles(q, a.heads, a.dim, o.q + i * o.head_tiles * o.n * kTileWords);
  float* weights = o.weights + i * o.head_tiles * 16;
  for (int64_t h = 0; h < a.heads; h += 16) {
    const Vec w = LoadFirst(a.weights + r * a.heads + h, a.heads - h) * Set(a.weight_scale);
    Store(weights + h, RoundIf(a.round, w));
  }
}

// Keys index[0 ... n - 1] of a sequence.
static inline void DecodeKeys(const IndexSelectArgs& a, int64_t seq, const int32_t* index,
                              int64_t n, const IndexOperands& o) {
  const int64_t bytes = RowBytes(a.keys.format, a.dim);
  for (int64_t i = 0; i < n; ++i) {
    RowToBf16(a.keys.format, PagedRow(a.keys, seq, index[i], bytes), a.dim,
              o.keys + i * o.key_stride);
  }
}

// To nearest even. NaNs here come from bf16 values: rounding cannot carry into their sign.
template <bool kRound>
static inline Vec RoundProduct(Vec v) {
  if (!kRound) return v;
  const __mmask16 odd = _mm512_test_epi32_mask(Bits(v), SetInt(0x10000));
  const IntVec half = _mm512_mask_blend_epi32(odd, SetInt(0x7fff), SetInt(0x8000));
  return FromBits(And(AddInt(Bits(v), half), SetInt(-65536)));
}

// Adds 16 heads to the sums of kKeyTile keys.
template <bool kRound>
static inline void AddHeads(const float* dots, const float* weights, Vec (&sums)[kKeyTile]) {
  const Vec weight = Load(weights);
#pragma GCC unroll 4
  for (int i = 0; i < kKeyTile; ++i) {
    const Vec positive = Max(Zero(), RoundProduct<kRound>(Load(dots + 32 * i)));  // NaN stays NaN
    sums[i] = sums[i] + RoundProduct<kRound>(positive * weight);
  }
}

template <bool kRound>
static inline void ScoreKeyTile(const IndexOperands& o, const uint16_t* keys, const uint16_t* q,
                                const float* weights, float* scores) {
  alignas(64) float dots[kKeyTile * 32];
  Vec sums[kKeyTile];
  for (Vec& sum : sums) sum = Zero();
  for (int64_t t = 0; t < o.head_tiles; t += 2) {
    const bool two = t + 1 < o.head_tiles;
    Fence();
    if (two) {
      ProductTiles<2>(keys, o.key_stride, q + t * o.n * kTileWords, o.n, dots, 32);
    } else {
      ProductTiles<1>(keys, o.key_stride, q + t * o.n * kTileWords, o.n, dots, 32);
    }
    Fence();
    AddHeads<kRound>(dots, weights + 16 * t, sums);
    if (two) AddHeads<kRound>(dots + 16, weights + 16 * t + 16, sums);
  }
  for (int i = 0; i < kKeyTile; i += 16) {
    Store(scores + i, RoundIf(kRound, SumEach(*reinterpret_cast<const Vec(*)[16]>(sums + i))));
  }
}

// scores [kIndexKeyBlock] of the first n decoded keys for row r, the i-th of its group; those
// behind are unspecified.
static inline void ScoreKeys(const IndexSelectArgs& a, int64_t, int64_t i, const IndexOperands& o,
                             int64_t n, float* scores) {
  const uint16_t* q = o.q + i * o.head_tiles * o.n * kTileWords;
  const float* weights = o.weights + i * o.head_tiles * 16;
  for (int64_t first = 0; first < n; first += kKeyTile) {
    const uint16_t* keys = o.keys + first * o.key_stride;
    if (a.round_scores) {
      ScoreKeyTile<true>(o, keys, q, weights, scores + first);
    } else {
      ScoreKeyTile<false>(o, keys, q, weights, scores + first);
    }
  }
}
