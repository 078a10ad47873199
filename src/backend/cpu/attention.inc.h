// Attention over window and selected rows. Included inside namespace deepinfer::cpu::<isa>, after
// attention_rows.inc.h.
//
// The heads of one row that a thread has share every decoded block of 64 rows. Each dot product has
// one accumulator over ascending columns, each output one over ascending rows, whatever the heads
// beside it: so the cut over threads changes no bit. Bound: multiply-adds (2 * heads * rows *
// head_dim a token).
// Reached, 64 heads and 640 rows on one core: AVX-512 0.64 ms a row, 66 % of the FMA peak of the
// same run; AVX2 1.23 ms. Before, eight heads shared a decoded block: 1.58 and 1.83 ms.

// A tile of dot products: kHeadTile heads x kRowTile rows, one vector each, then as many lanes.
constexpr int kRowTile = 4, kHeadTile = kLanes / kRowTile;
// Rows scored at a time by all heads: 16 x 512 floats stay in the first-level cache.
constexpr int kScoredRows = 16;
static_assert(kAttentionBlock % kScoredRows == 0 && kScoredRows % kRowTile == 0, "whole tiles");

// Where the heads of one row keep their state in the thread's scratch (AttentionScratchFloats).
struct AttentionState {
  float* rows;    // [kAttentionBlock] decoded, row_stride apart
  float* scores;  // [kAttentionHeads, kAttentionBlock]
  float* sums;    // [kAttentionHeads, head_dim]
  float* top;     // [kAttentionHeads] running maximum
  float* total;   // [kAttentionHeads] running denominator
  float* shrink;  // [kAttentionHeads] factor for everything summed before the block
  int64_t row_stride;
};

static inline AttentionState PlaceState(float* scratch, int64_t head_dim) {
  AttentionState s;
  s.row_stride = head_dim + 16;  // a multiple of 2 KiB would put rows into the same cache sets
  s.rows = scratch;
  s.scores = s.rows + kAttentionBlock * s.row_stride;
  s.sums = s.scores + kAttentionHeads * kAttentionBlock;
  s.top = s.sums + kAttentionHeads * head_dim;
  s.total = s.top + kAttentionHeads;
  s.shrink = s.total + kAttentionHeads;
  return s;
}

// Tiles at the edge repeat the last head or row.
static inline int64_t NotBeyond(int64_t i, int64_t n) { return i < n ? i : n - 1; }

// Columns [d, d + n) of the dot products, n at most kLanes.
static inline void ScoreStep(const float* const (&q)[kHeadTile],
                             const float* const (&rows)[kRowTile], int64_t d, int64_t n,
                             Vec (&sum)[kLanes]) {
  Vec row[kRowTile];
#pragma GCC unroll 4
  for (int i = 0; i < kRowTile; ++i) row[i] = LoadFirst(rows[i] + d, n);
#pragma GCC unroll 4
  for (int h = 0; h < kHeadTile; ++h) {
    const Vec query = LoadFirst(q[h] + d, n);
#pragma GCC unroll 4
    for (int i = 0; i < kRowTile; ++i) {
      sum[h * kRowTile + i] = Fma(query, row[i], sum[h * kRowTile + i]);
    }
  }
}

// Scores of heads [h, h + kHeadTile) with rows [i, i + kRowTile) of the block. n_rows may end
// inside the tile: what is stored behind it means nothing.
static inline void ScoreTile(const float* q, int64_t h, int64_t n_heads, int64_t i, int64_t n_rows,
                             int64_t dim, float scale, const AttentionState& s) {
  const float *queries[kHeadTile], *rows[kRowTile];
#pragma GCC unroll 4
  for (int k = 0; k < kHeadTile; ++k) queries[k] = q + NotBeyond(h + k, n_heads) * dim;
#pragma GCC unroll 4
  for (int k = 0; k < kRowTile; ++k) rows[k] = s.rows + NotBeyond(i + k, n_rows) * s.row_stride;
  Vec sum[kLanes];
#pragma GCC unroll 16
  for (int k = 0; k < kLanes; ++k) sum[k] = Zero();
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) ScoreStep(queries, rows, d, kLanes, sum);
  if (d < dim) ScoreStep(queries, rows, d, dim - d, sum);
  float scores[kLanes];
  Store(scores, SumEach(sum) * Set(scale));
#pragma GCC unroll 4
  for (int k = 0; k < kHeadTile; ++k) {
    float* to = s.scores + NotBeyond(h + k, n_heads) * kAttentionBlock + i;
    memcpy(to, scores + k * kRowTile, sizeof(float) * kRowTile);
  }
}

// One block of the running softmax of one head: scores [n] become the weights of the value sum;
// returns the factor for everything summed before.
static inline float AddBlock(float* scores, int64_t n, bool round_p, float* top, float* total) {
  Vec largest = Set(*top), sum = Zero();
  for (int64_t i = n; i < kAttentionBlock; ++i) scores[i] = -INFINITY;  // weight 0
  for (int i = 0; i < kAttentionBlock; i += kLanes) largest = Max(Load(scores + i), largest);
  const float new_top = Largest(largest);
  for (int i = 0; i < kAttentionBlock; i += kLanes) {
    const Vec p = Exp(Load(scores + i) - Set(new_top));
    sum = sum + p;
    Store(scores + i, RoundIf(round_p, p));
  }
  const float shrink = FirstLane(Exp(Set(*top) - Set(new_top)));
  *total = *total * shrink + Sum(sum);
  *top = new_top;
  return shrink;
}

// sums[h, d ...] = sums[h, d ...] * shrink[h] + sum_i p[h, i] rows[i, d ...] for kHeadTile heads
// and the n <= kVecs * kLanes columns from d.
template <int kVecs>
static inline void ValueTile(int64_t first_head, int64_t n_heads, int64_t n_rows, int64_t dim,
                             int64_t d, int64_t n, const AttentionState& s) {
  Vec sum[kHeadTile][kVecs];
  const float* p[kHeadTile];
  float* sums[kHeadTile];
#pragma GCC unroll 4
  for (int h = 0; h < kHeadTile; ++h) {
    const int64_t head = NotBeyond(first_head + h, n_heads);
    p[h] = s.scores + head * kAttentionBlock;
    sums[h] = s.sums + head * dim + d;
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      sum[h][v] = LoadFirst(sums[h] + v * kLanes, n - v * kLanes) * Set(s.shrink[head]);
    }
  }
  const float* row = s.rows + d;
  for (int64_t i = 0; i < n_rows; ++i, row += s.row_stride) {
    Vec values[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) values[v] = LoadFirst(row + v * kLanes, n - v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeadTile; ++h) {
      const Vec weight = Set(p[h][i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[h][v] = Fma(weight, values[v], sum[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeadTile; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      StoreFirst(sums[h] + v * kLanes, sum[h][v], n - v * kLanes);
    }
  }
}

// All heads for a few columns, then the next columns: a strip of the rows stays in the first-level
// cache.
static inline void AddValues(int64_t n_heads, int64_t n_rows, int64_t dim,
                             const AttentionState& s) {
  constexpr int kVecs = 4;
  int64_t d = 0;
  for (; d + kVecs * kLanes <= dim; d += kVecs * kLanes) {
    for (int64_t h = 0; h < n_heads; h += kHeadTile) {
      ValueTile<kVecs>(h, n_heads, n_rows, dim, d, kVecs * kLanes, s);
    }
  }
  for (; d < dim; d += kLanes) {
    for (int64_t h = 0; h < n_heads; h += kHeadTile) {
      ValueTile<1>(h, n_heads, n_rows, dim, d, Smaller(kLanes, dim - d), s);
    }
  }
}

// Decodes rows [first, first + n) of the list and scores them.
static inline void ScoreBlock(const AttentionArgs& a, int64_t r, const RowList& list, int64_t first,
                              int64_t n, const float* q, int64_t n_heads, const AttentionState& s) {
  for (int64_t begin = 0; begin < n; begin += kScoredRows) {
    const int64_t end = Smaller(n, begin + kScoredRows);
    for (int64_t i = begin; i < end; ++i) {
      DecodeRow(FormatOfListed(a, list, first + i), FindListed(a, r, list, first + i), a.head_dim,
                s.rows + i * s.row_stride);
    }
    PrefetchListed(a, r, list, first + end, kScoredRows);
    for (int64_t h = 0; h < n_heads; h += kHeadTile) {
      for (int64_t i = begin; i < end; i += kRowTile) {
        ScoreTile(q, h, n_heads, i, n, a.head_dim, a.scale, s);
      }
    }
  }
}

// o[r, head] = sums / (total + exp(sink - top)), from place h of the state.
static inline void WriteHead(const AttentionArgs& a, int64_t r, int64_t head,
                             const AttentionState& s, int64_t h) {
  const int64_t dim = a.head_dim;
  const Vec sink = Exp(Set(LoadF32(a.sink + 4 * head) - s.top[h]));
  const Vec total = Set(s.total[h]) + sink;
  float* o = a.o + (r * a.heads + head) * dim;
  for (int64_t d = 0; d < dim; d += kLanes) {
    const Vec value = LoadFirst(s.sums + h * dim + d, dim - d) / total;
    StoreFirst(o + d, RoundIf(a.round, value), dim - d);
  }
}

// Heads [first_head, first_head + n_heads) of row r, n_heads at most kAttentionHeads.
static void AttendHeads(const AttentionArgs& a, int64_t r, int64_t first_head, int64_t n_heads,
                        float* scratch) {
  const int64_t dim = a.head_dim;
  const AttentionState s = PlaceState(scratch, dim);
  const float* q = a.q + (r * a.heads + first_head) * dim;
  const RowList list = ListRows(a, r);
  for (int64_t h = 0; h < n_heads; ++h) s.top[h] = -1e30f, s.total[h] = 0;
  memset(s.sums, 0, static_cast<size_t>(n_heads * dim) * sizeof(float));
  for (int64_t first = 0; first < list.n; first += kAttentionBlock) {
    const int64_t n = Smaller(kAttentionBlock, list.n - first);
    ScoreBlock(a, r, list, first, n, q, n_heads, s);
    for (int64_t h = 0; h < n_heads; ++h) {
      s.shrink[h] = AddBlock(s.scores + h * kAttentionBlock, n, a.round_p, s.top + h, s.total + h);
    }
    AddValues(n_heads, n, dim, s);
  }
  for (int64_t h = 0; h < n_heads; ++h) WriteHead(a, r, first_head + h, s, h);
}

void Attention(const AttentionArgs& a, Work w) {
  const int64_t tiles = (a.heads + kHeadTile - 1) / kHeadTile;
  const Span part = SplitWork(*a.n_rows * tiles, 1, w);
  for (int64_t i = part.begin, n; i < part.end; i += n) {
    const int64_t first = i % tiles;
    n = Smaller(Smaller(tiles - first, part.end - i), kAttentionHeads / kHeadTile);
    const int64_t head = first * kHeadTile;
    AttendHeads(a, i / tiles, head, Smaller(n * kHeadTile, a.heads - head),
                a.scratch + w.tid * a.scratch_stride);
  }
}
