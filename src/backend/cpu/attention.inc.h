// Attention over window and selected rows. Included inside namespace deepinfer::cpu::<isa>.
//
// A group of heads of one row shares every decoded block of 64 rows. Each dot product has one
// accumulator over ascending columns, each output one over ascending rows, whatever the group: so
// the cut over threads changes no bit. Bound: multiply-adds (2 * heads * rows * head_dim a token; a
// decoded block is used by up to 8 heads).

constexpr int kHeadTile = 4;

// Where one group of heads keeps its state in the thread's scratch (AttentionScratchFloats).
struct AttentionState {
  float* rows;    // [kAttentionBlock, head_dim] decoded
  float* scores;  // [heads, kAttentionBlock]
  float* sums;    // [heads, head_dim]
  float* top;     // [heads] running maximum
  float* total;   // [heads] running denominator
};

static inline AttentionState PlaceState(float* scratch, int64_t head_dim) {
  AttentionState s;
  s.rows = scratch;
  s.scores = s.rows + kAttentionBlock * head_dim;
  s.sums = s.scores + kAttentionHeads * kAttentionBlock;
  s.top = s.sums + kAttentionHeads * head_dim;
  s.total = s.top + kAttentionHeads;
  return s;
}

// The rows that row `r` of the step attends to: n_window window rows from position window_begin,
// then n_selected.
struct RowList {
  int64_t window_begin, n_window, n_selected;
};

static inline RowList ListRows(const AttentionArgs& a, int64_t r) {
  const int64_t t = a.positions[r], first = t - a.window + 1;
  const int64_t begin = first > 0 ? first : 0;
  return {begin, t + 1 - begin, a.compressed.rows != nullptr ? a.n_selected[r] : 0};
}

// Decodes rows [first, first + n) of the list.
static inline void DecodeListed(const AttentionArgs& a, int64_t r, const RowList& list,
                                int64_t first, int64_t n, float* rows) {
  const int64_t window_bytes = RowBytes(a.window_format, a.head_dim);
  const int64_t compressed_bytes = RowBytes(a.compressed.format, a.head_dim);
  for (int64_t i = first; i < first + n; ++i, rows += a.head_dim) {
    if (i < list.n_window) {
      const int64_t slot = int64_t{a.row_slots[r]} * a.ring + (list.window_begin + i) % a.ring;
      DecodeRow(a.window_format, a.window_rows + slot * window_bytes, a.head_dim, rows);
    } else {
      const int64_t j = a.selected[r * a.topk + i - list.n_window];
      const uint8_t* row = PagedRow(a.compressed, a.row_seqs[r], j, compressed_bytes);
      DecodeRow(a.compressed.format, row, a.head_dim, rows);
    }
  }
}

// Columns [d, d + n) of the dot products of kHeads heads with kRows rows, n at most kLanes.
template <int kHeads, int kRows>
static inline void ScoreStep(const float* q, const float* rows, int64_t dim, int64_t d, int64_t n,
                             Vec (&sum)[kHeads][kRows]) {
  Vec row[kRows];
#pragma GCC unroll 2
  for (int i = 0; i < kRows; ++i) row[i] = LoadFirst(rows + i * dim + d, n);
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
    const Vec query = LoadFirst(q + h * dim + d, n);
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) sum[h][i] = Fma(query, row[i], sum[h][i]);
  }
}

// scores[h, i] = q[h] . rows[i] * scale for kHeads heads and kRows rows.
template <int kHeads, int kRows>
static inline void ScoreTile(const float* q, const float* rows, int64_t dim, float scale,
                             float* scores) {
  Vec sum[kHeads][kRows];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) sum[h][i] = Zero();
  }
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) ScoreStep(q, rows, dim, d, kLanes, sum);
  if (d < dim) ScoreStep(q, rows, dim, d, dim - d, sum);
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) scores[h * kAttentionBlock + i] = Sum(sum[h][i]) * scale;
  }
}

template <int kHeads>
static inline void ScoreHeads(const float* q, const float* rows, int64_t n, int64_t dim,
                              float scale, float* scores) {
  int64_t i = 0;
  for (; i + 2 <= n; i += 2) ScoreTile<kHeads, 2>(q, rows + i * dim, dim, scale, scores + i);
  if (i < n) ScoreTile<kHeads, 1>(q, rows + i * dim, dim, scale, scores + i);
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

// sums[h, d ...] = sums[h, d ...] * shrink[h] + sum_i p[h, i] rows[i, d ...] for kHeads heads and
// the n <= kVecs * kLanes columns from d.
template <int kHeads, int kVecs>
static inline void ValueTile(const float* p, const float* rows, int64_t n_rows, int64_t dim,
                             int64_t d, int64_t n, const float* shrink, float* sums) {
  Vec sum[kHeads][kVecs];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      sum[h][v] = LoadFirst(sums + h * dim + d + v * kLanes, n - v * kLanes) * Set(shrink[h]);
    }
  }
  for (int64_t i = 0; i < n_rows; ++i) {
    Vec row[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      row[v] = LoadFirst(rows + i * dim + d + v * kLanes, n - v * kLanes);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Vec weight = Set(p[h * kAttentionBlock + i]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) sum[h][v] = Fma(weight, row[v], sum[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      StoreFirst(sums + h * dim + d + v * kLanes, sum[h][v], n - v * kLanes);
    }
  }
}

template <int kHeads>
static inline void ValueHeads(const float* p, const float* rows, int64_t n_rows, int64_t dim,
                              const float* shrink, float* sums) {
  int64_t d = 0;
  for (; d + 2 * kLanes <= dim; d += 2 * kLanes) {
    ValueTile<kHeads, 2>(p, rows, n_rows, dim, d, 2 * kLanes, shrink, sums);
  }
  for (; d < dim; d += kLanes) {
    ValueTile<kHeads, 1>(p, rows, n_rows, dim, d, Smaller(kLanes, dim - d), shrink, sums);
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
  float shrink[kAttentionHeads];
  for (int64_t h = 0; h < n_heads; ++h) s.top[h] = -1e30f, s.total[h] = 0;
  memset(s.sums, 0, static_cast<size_t>(n_heads * dim) * sizeof(float));

  for (int64_t first = 0; first < list.n_window + list.n_selected; first += kAttentionBlock) {
    const int64_t n = Smaller(kAttentionBlock, list.n_window + list.n_selected - first);
    DecodeListed(a, r, list, first, n, s.rows);
    int64_t h = 0;
    for (; h + kHeadTile <= n_heads; h += kHeadTile) {
      ScoreHeads<kHeadTile>(q + h * dim, s.rows, n, dim, a.scale, s.scores + h * kAttentionBlock);
    }
    for (; h < n_heads; ++h) {
      ScoreHeads<1>(q + h * dim, s.rows, n, dim, a.scale, s.scores + h * kAttentionBlock);
    }
    for (h = 0; h < n_heads; ++h) {
      shrink[h] = AddBlock(s.scores + h * kAttentionBlock, n, a.round_p, s.top + h, s.total + h);
    }
    for (h = 0; h + kHeadTile <= n_heads; h += kHeadTile) {
      ValueHeads<kHeadTile>(s.scores + h * kAttentionBlock, s.rows, n, dim, shrink + h,
                            s.sums + h * dim);
    }
    for (; h < n_heads; ++h) {
      ValueHeads<1>(s.scores + h * kAttentionBlock, s.rows, n, dim, shrink + h, s.sums + h * dim);
    }
  }
  for (int64_t h = 0; h < n_heads; ++h) WriteHead(a, r, first_head + h, s, h);
}

void Attention(const AttentionArgs& a, Work w) {
  int64_t group = kAttentionHeads;  // smaller when there would not be a group for every thread
  while (group > 1 && *a.n_rows * ((a.heads + group - 1) / group) < w.n) group /= 2;
  const int64_t groups = (a.heads + group - 1) / group;
  const Span part = SplitWork(*a.n_rows * groups, 1, w);
  for (int64_t i = part.begin; i < part.end; ++i) {
    const int64_t first_head = i % groups * group;
    AttendHeads(a, i / groups, first_head, Smaller(group, a.heads - first_head),
                a.scratch + w.tid * a.scratch_stride);
  }
}
