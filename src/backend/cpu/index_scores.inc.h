// Scores of a block of index keys, in floats. Included inside namespace deepinfer::cpu::<isa>,
// before index_select.inc.h.
//
// Keys are transposed while they are decoded: a lane is a key, so a dot product is a plain sum over
// ascending columns and no sum crosses lanes. Bound: multiply-adds (heads * dim a key and row).
// Reached, 32 heads of 128, on one core: AVX-512 80 ns a key for one row (49 % of the FMA peak of
// the same run), 57 where six rows share keys (68 %); AVX2 129 and 106. Storing decoded keys column
// by column took 200 for any number of rows.

// Keys and queries in the thread's scratch.
struct IndexOperands {
  float* keys;     // [dim][kIndexKeyBlock]
  float* weights;  // [kIndexGroupRows][heads]
};

static inline IndexOperands PlaceOperands(const IndexSelectArgs& a, uint8_t* scratch) {
  float* keys = reinterpret_cast<float*>(scratch);
  return {keys, keys + kIndexKeyBlock * a.dim};
}

// What is computed once for row r, the i-th of its group.
static inline void PrepareRow(const IndexSelectArgs& a, int64_t r, int64_t i,
                              const IndexOperands& o) {
  float* weights = o.weights + i * a.heads;
  for (int64_t h = 0; h < a.heads; h += kLanes) {
    const Vec w = LoadFirst(a.weights + r * a.heads + h, a.heads - h) * Set(a.weight_scale);
    StoreFirst(weights + h, RoundIf(a.round, w), a.heads - h);
  }
}

// Keys index[0 ... n - 1] of a sequence. Lanes behind the last key repeat it.
static inline void DecodeKeys(const IndexSelectArgs& a, int64_t seq, const int32_t* index,
                              int64_t n, const IndexOperands& o) {
  const PagedRows& cache = a.keys;
  const int64_t bytes = RowBytes(cache.format, a.dim);
  for (int64_t first = 0; first < n; first += kLanes) {
    const uint8_t* rows[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      rows[i] = PagedRow(cache, seq, index[Smaller(first + i, n - 1)], bytes);
    }
    for (int64_t c = 0; c < a.dim; c += 32) {
      const int64_t width = Smaller(32, a.dim - c);
      float part[kLanes][32];
      for (int i = 0; i < kLanes; ++i) {
        DecodeColumns(cache.format, rows[i], a.dim, c, width, part[i]);
      }
      for (int64_t k = 0; k < width; k += kLanes) {
        Vec lanes[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) lanes[i] = Load(part[i] + k);
        TransposeLanes(lanes);
        for (int64_t j = 0; j < Smaller(kLanes, width - k); ++j) {
          Store(o.keys + (c + k + j) * kIndexKeyBlock + first, lanes[j]);
        }
      }
    }
  }
}

constexpr int kKeyVecs = 4;  // vectors of keys a tile of heads is multiplied with

// Adds kHeads heads to the totals of kKeyVecs * kLanes keys, heads ascending.
template <int kHeads>
static inline void AddHeads(const float* q, const float* weight, const float* keys, int64_t dim,
                            bool round, Vec (&total)[kKeyVecs]) {
  Vec dot[kHeads][kKeyVecs];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kKeyVecs; ++v) dot[h][v] = Zero();
  }
  for (int64_t d = 0; d < dim; ++d) {
    Vec key[kKeyVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kKeyVecs; ++v) key[v] = Load(keys + d * kIndexKeyBlock + v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Vec query = Set(q[h * dim + d]);
#pragma GCC unroll 4
      for (int v = 0; v < kKeyVecs; ++v) dot[h][v] = Fma(query, key[v], dot[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kKeyVecs; ++v) {
      const Vec positive = Max(Zero(), RoundIf(round, dot[h][v]));  // NaN stays NaN
      total[v] = total[v] + RoundIf(round, positive * Set(weight[h]));
    }
  }
}

// scores [kIndexKeyBlock] of the first n decoded keys for row r, the i-th of its group; those
// behind are unspecified.
static inline void ScoreKeys(const IndexSelectArgs& a, int64_t r, int64_t i, const IndexOperands& o,
                             int64_t n, float* scores) {
  constexpr int kHeads = kLanes / kKeyVecs;  // as many accumulators as lanes
  const float* q = a.q + r * a.heads * a.dim;
  const float* weights = o.weights + i * a.heads;
  for (int64_t first = 0; first < n; first += kKeyVecs * kLanes) {
    Vec total[kKeyVecs] = {Zero(), Zero(), Zero(), Zero()};
    int64_t h = 0;
    for (; h + kHeads <= a.heads; h += kHeads) {
      AddHeads<kHeads>(q + h * a.dim, weights + h, o.keys + first, a.dim, a.round_scores, total);
    }
    for (; h < a.heads; ++h) {
      AddHeads<1>(q + h * a.dim, weights + h, o.keys + first, a.dim, a.round_scores, total);
    }
    for (int v = 0; v < kKeyVecs; ++v) {
      Store(scores + first + v * kLanes, RoundIf(a.round_scores, total[v]));
    }
  }
}
