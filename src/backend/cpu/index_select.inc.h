// Index scores and selection. Included inside namespace deepinfer::cpu::<isa>.
//
// Keys stream by in blocks of 64, transposed while they are decoded: a lane is a key, so a dot
// product is a plain sum over ascending columns without a horizontal step. Bound: multiply-adds
// (heads * dim a key). What is kept does not grow with the context: the best `topk` so far and as
// many newcomers.

// ---- selection ----

// An entry waits with its score as an integer of the same order.
struct KeptEntry {
  uint32_t order;
  int32_t index;
};
static_assert(sizeof(KeptEntry) == sizeof(ScoredIndex), "the scratch is booked for ScoredIndex");

constexpr uint32_t kAlwaysKept = 0xffffffff;  // above every score

// Larger score, larger integer; -0 equals +0; NaN is below everything.
static inline uint32_t ScoreOrder(float score) {
  if (score != score) return 0;
  const float unsigned_zero = score + 0.0f;
  uint32_t bits;
  memcpy(&bits, &unsigned_zero, 4);
  return (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
}

// The best `keep` entries of all that were added, in ascending order of their index. Entries come
// in that order, so among equals the ones already here win.
struct Selection {
  KeptEntry* entries;  // [2 * keep]
  int64_t keep, count;
  int64_t floor;  // newcomers must be above; -1 until `keep` entries are known
};

struct Threshold {
  uint32_t order;   // of the last entry that stays
  int64_t n_equal;  // how many entries of that order stay
};

// Byte by byte from the top: counts the entries by their next byte and walks down to the keep-th.
static inline Threshold FindThreshold(const KeptEntry* entries, int64_t count, int64_t keep) {
  Threshold t = {0, keep};
  uint32_t known = 0;  // mask of the bytes of t.order that are decided
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t n[256] = {};
    for (int64_t i = 0; i < count; ++i) {
      if ((entries[i].order & known) == t.order) ++n[entries[i].order >> shift & 255];
    }
    uint32_t byte = 255;
    for (; n[byte] < t.n_equal; --byte) t.n_equal -= n[byte];
    t.order |= byte << shift;
    known |= 255u << shift;
  }
  return t;
}

static inline void Shrink(Selection* s) {
  if (s->count <= s->keep) return;
  Threshold t = FindThreshold(s->entries, s->count, s->keep);
  int64_t kept = 0;
  for (int64_t i = 0; i < s->count; ++i) {
    const KeptEntry e = s->entries[i];
    if (e.order < t.order || (e.order == t.order && t.n_equal-- <= 0)) continue;
    s->entries[kept++] = e;
  }
  s->count = kept;
  s->floor = t.order;
}

static inline void Offer(Selection* s, uint32_t order, int64_t index) {
  if (int64_t{order} <= s->floor) return;
  s->entries[s->count++] = {order, static_cast<int32_t>(index)};
  if (s->count == 2 * s->keep) Shrink(s);
}

// Writes the kept indices, ascending; returns their number.
static inline int32_t Finish(Selection* s, int32_t* indices) {
  Shrink(s);
  for (int64_t i = 0; i < s->count; ++i) indices[i] = s->entries[i].index;
  return static_cast<int32_t>(s->count);
}

// ---- scores of a block of keys ----

// Decodes keys index[0 ... n - 1] of a sequence into keys [dim, kIndexKeyBlock].
static inline void DecodeKeys(const PagedRows& cache, int64_t seq, const int32_t* index, int64_t n,
                              int64_t dim, float* keys) {
  const int64_t bytes = RowBytes(cache.format, dim);
  float part[32];
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t* row = PagedRow(cache, seq, index[i], bytes);
    for (int64_t c = 0; c < dim; c += 32) {
      const int64_t width = Smaller(32, dim - c);
      DecodeColumns(cache.format, row, dim, c, width, part);
      for (int64_t k = 0; k < width; ++k) keys[(c + k) * kIndexKeyBlock + i] = part[k];
    }
  }
}

// Adds kHeads heads to the totals of kLanes keys, heads ascending. weight [kHeads] is w[h] of the
// contract.
template <int kHeads>
static inline Vec AddHeads(const float* q, const float* weight, const float* keys, int64_t dim,
                           bool round, Vec total) {
  Vec dot[kHeads];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) dot[h] = Zero();
  for (int64_t d = 0; d < dim; ++d) {
    const Vec key = Load(keys + d * kIndexKeyBlock);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) dot[h] = Fma(Set(q[h * dim + d]), key, dot[h]);
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
    const Vec positive = Max(Zero(), RoundIf(round, dot[h]));  // NaN stays NaN
    total = total + RoundIf(round, positive * Set(weight[h]));
  }
  return total;
}

static inline float HeadWeight(const IndexSelectArgs& a, int64_t r, int64_t h) {
  return FirstLane(RoundIf(a.round, Set(a.weights[r * a.heads + h] * a.weight_scale)));
}

// scores [kIndexKeyBlock] of the first n decoded keys; those behind are unspecified.
static inline void ScoreKeys(const IndexSelectArgs& a, int64_t r, const float* keys, int64_t n,
                             float* scores) {
  constexpr int kTile = 8;
  const float* q = a.q + r * a.heads * a.dim;
  Vec total[kIndexKeyBlock / kLanes];
  for (Vec& t : total) t = Zero();
  for (int64_t h = 0; h < a.heads;) {
    const int64_t heads = a.heads - h >= kTile ? kTile : 1;
    float weight[kTile];
    for (int64_t k = 0; k < heads; ++k) weight[k] = HeadWeight(a, r, h + k);
    for (int64_t v = 0; v * kLanes < n; ++v) {
      const float* lane_keys = keys + v * kLanes;
      total[v] =
          heads == kTile
              ? AddHeads<kTile>(q + h * a.dim, weight, lane_keys, a.dim, a.round_scores, total[v])
              : AddHeads<1>(q + h * a.dim, weight, lane_keys, a.dim, a.round_scores, total[v]);
    }
    h += heads;
  }
  for (int v = 0; v < kIndexKeyBlock / kLanes; ++v) {
    Store(scores + v * kLanes, RoundIf(a.round_scores, total[v]));
  }
}

// ---- one row ----

// What the contract asks for row r.
struct RowTask {
  int64_t row, visible;
  bool masked;         // only keys inside the candidate blocks
  bool choose_blocks;  // candidate blocks are written, and there are more than fit
  bool choose_rows;    // false: all visible keys are in
};

static inline RowTask TaskOf(const IndexSelectArgs& a, int64_t r) {
  RowTask t = {r, (int64_t{a.positions[r]} + 1) / a.ratio, false, false, false};
  t.masked = a.mode == Candidates::kRead && a.n_candidates[r] >= 0;
  t.choose_blocks = a.mode == Candidates::kWrite &&
                    (t.visible + a.block_size - 1) / a.block_size > a.candidate_blocks;
  t.choose_rows = t.masked || t.visible > a.topk;
  return t;
}

// The keys of a row, or a part of them, ascending.
struct KeyCursor {
  const int32_t* blocks;  // candidate blocks; null: keys next ... end - 1
  int64_t block_size, visible;
  int64_t next, end;  // in keys, or in candidate blocks
  int64_t offset;     // inside blocks[next]
};

// Part `part` of the keys. Parts are cut between blocks, so that each block's best score is found
// by one thread.
static inline KeyCursor CutKeys(const IndexSelectArgs& a, const RowTask& t, Work part) {
  const int64_t blocks_at_once =
      a.block_size > 0 ? (kIndexKeyBlock + a.block_size - 1) / a.block_size : 1;
  if (t.masked) {
    const Span s = SplitWork(a.n_candidates[t.row], blocks_at_once, part);
    return {a.candidates + t.row * a.candidate_blocks, a.block_size, t.visible, s.begin, s.end, 0};
  }
  const int64_t unit = a.block_size > 0 ? blocks_at_once * a.block_size : kIndexKeyBlock;
  const Span s = SplitWork(t.visible, unit, part);
  return {nullptr, a.block_size, t.visible, s.begin, s.end, 0};
}

// Writes the next keys, at most kIndexKeyBlock; returns their number, 0 at the end.
static inline int64_t NextKeys(KeyCursor* c, int32_t* index) {
  int64_t n = 0;
  if (c->blocks == nullptr) {
    while (n < kIndexKeyBlock && c->next < c->end) index[n++] = static_cast<int32_t>(c->next++);
    return n;
  }
  while (n < kIndexKeyBlock && c->next < c->end) {
    const int64_t key = c->blocks[c->next] * c->block_size + c->offset;
    if (c->offset == c->block_size || key >= c->visible) {
      ++c->next;
      c->offset = 0;
      continue;
    }
    index[n++] = static_cast<int32_t>(key);
    ++c->offset;
  }
  return n;
}

// What a thread keeps of its part of a row, at a fixed place of its scratch: the merge reads it.
struct PartState {
  Selection rows, blocks;
  uint32_t block_best;  // of the candidate block that is streaming by
};
static_assert(sizeof(PartState) <= kIndexKeyBlock * sizeof(ScoredIndex),
              "IndexSelectScratchBytes leaves this much");

static inline float* KeysOf(const IndexSelectArgs& a, int64_t tid) {
  return reinterpret_cast<float*>(a.scratch + tid * a.scratch_stride);
}

static inline PartState* StateOf(const IndexSelectArgs& a, int64_t tid) {
  return reinterpret_cast<PartState*>(KeysOf(a, tid) + kIndexKeyBlock * (a.dim + 1));
}

static inline void OfferBlock(const IndexSelectArgs& a, const RowTask& t, int64_t j, uint32_t order,
                              PartState* s) {
  s->block_best = s->block_best < order ? order : s->block_best;
  if ((j + 1) % a.block_size != 0 && j + 1 != t.visible) return;
  const bool newest = j / a.block_size == (t.visible - 1) / a.block_size;
  Offer(&s->blocks, newest ? kAlwaysKept : s->block_best, j / a.block_size);
  s->block_best = 0;
}

// Scores one part of the keys of a row; what is kept stays in the scratch of thread tid.
static void ScanPart(const IndexSelectArgs& a, const RowTask& t, Work part, int64_t tid) {
  float* keys = KeysOf(a, tid);
  float* scores = keys + kIndexKeyBlock * a.dim;
  PartState* s = StateOf(a, tid);
  KeptEntry* entries = reinterpret_cast<KeptEntry*>(s + 1);
  *s = {{entries, a.topk, 0, -1}, {entries + 2 * a.topk, a.candidate_blocks, 0, -1}, 0};
  if (!t.choose_rows && !t.choose_blocks) return;
  KeyCursor cursor = CutKeys(a, t, part);
  int32_t index[kIndexKeyBlock];
  for (int64_t n = NextKeys(&cursor, index); n > 0; n = NextKeys(&cursor, index)) {
    DecodeKeys(a.keys, a.row_seqs[t.row], index, n, a.dim, keys);
    ScoreKeys(a, t.row, keys, n, scores);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t order = ScoreOrder(scores[i]);
      if (t.choose_rows) Offer(&s->rows, order, index[i]);
      if (t.choose_blocks) OfferBlock(a, t, index[i], order, s);
    }
  }
}

static inline void Append(const Selection& from, Selection* to) {
  for (int64_t i = 0; i < from.count; ++i) Offer(to, from.entries[i].order, from.entries[i].index);
}

// Joins the parts of a row, which threads first_tid ... hold in ascending order, and writes what
// was chosen.
static void FinishRow(const IndexSelectArgs& a, const RowTask& t, int64_t first_tid,
                      int64_t parts) {
  PartState* s = StateOf(a, first_tid);
  for (int64_t p = 1; p < parts; ++p) {
    Append(StateOf(a, first_tid + p)->rows, &s->rows);
    Append(StateOf(a, first_tid + p)->blocks, &s->blocks);
  }
  int32_t* selected = a.selected + t.row * a.topk;
  if (t.choose_rows) {
    a.n_selected[t.row] = Finish(&s->rows, selected);
  } else {
    for (int64_t j = 0; j < t.visible; ++j) selected[j] = static_cast<int32_t>(j);
    a.n_selected[t.row] = static_cast<int32_t>(t.visible);
  }
  if (a.mode != Candidates::kWrite) return;
  a.n_candidates[t.row] =
      t.choose_blocks ? Finish(&s->blocks, a.candidates + t.row * a.candidate_blocks) : -1;
}

// ---- both phases ----

// How many threads share the keys of one row; 1 when there is a row for every thread.
static inline int64_t PartsOfARow(const IndexSelectArgs& a, Work w) {
  return *a.n_rows > 0 && *a.n_rows < w.n ? w.n / *a.n_rows : 1;
}

void IndexSelect(const IndexSelectArgs& a, Work w) {
  const int64_t parts = PartsOfARow(a, w);
  if (parts > 1) {
    if (w.tid >= parts * *a.n_rows) return;
    const Work part = {static_cast<int>(w.tid % parts), static_cast<int>(parts)};
    ScanPart(a, TaskOf(a, w.tid / parts), part, w.tid);
    return;
  }
  const Span rows = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const RowTask t = TaskOf(a, r);
    ScanPart(a, t, Work{0, 1}, w.tid);
    FinishRow(a, t, w.tid, 1);
  }
}

void IndexMerge(const IndexSelectArgs& a, Work w) {
  const int64_t parts = PartsOfARow(a, w);
  if (parts == 1 || w.tid % parts != 0 || w.tid >= parts * *a.n_rows) return;
  FinishRow(a, TaskOf(a, w.tid / parts), w.tid, parts);
}
