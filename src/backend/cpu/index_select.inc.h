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

// Which keys may be chosen, ascending: all visible ones, or those inside the candidate blocks.
struct KeyCursor {
  const int32_t* blocks;  // null: all
  int64_t n_blocks, block_size, visible;
  int64_t block, offset;  // next key: offset inside blocks[block], or simply `offset`
};

// Writes the next keys, at most kIndexKeyBlock; returns their number, 0 at the end.
static inline int64_t NextKeys(KeyCursor* c, int32_t* index) {
  int64_t n = 0;
  if (c->blocks == nullptr) {
    while (n < kIndexKeyBlock && c->offset < c->visible)
      index[n++] = static_cast<int32_t>(c->offset++);
    return n;
  }
  while (n < kIndexKeyBlock && c->block < c->n_blocks) {
    const int64_t key = c->blocks[c->block] * c->block_size + c->offset;
    if (c->offset == c->block_size || key >= c->visible) {
      ++c->block;
      c->offset = 0;
      continue;
    }
    index[n++] = static_cast<int32_t>(key);
    ++c->offset;
  }
  return n;
}

// The best score of the candidate block that is streaming by.
struct BlockMaximum {
  uint32_t order;
  Selection blocks;
};

static inline void OfferBlocks(const IndexSelectArgs& a, int64_t visible, int64_t j, uint32_t order,
                               BlockMaximum* m) {
  m->order = m->order < order ? order : m->order;
  if ((j + 1) % a.block_size != 0 && j + 1 != visible) return;
  const bool newest = j / a.block_size == (visible - 1) / a.block_size;
  Offer(&m->blocks, newest ? kAlwaysKept : m->order, j / a.block_size);
  m->order = 0;
}

static void SelectRow(const IndexSelectArgs& a, int64_t r, uint8_t* scratch) {
  const int64_t visible = (int64_t{a.positions[r]} + 1) / a.ratio;
  const bool write = a.mode == Candidates::kWrite;
  const bool masked = a.mode == Candidates::kRead && a.n_candidates[r] >= 0;
  const bool all_blocks =
      write && (visible + a.block_size - 1) / a.block_size <= a.candidate_blocks;
  if (write && all_blocks) a.n_candidates[r] = -1;
  int32_t* selected = a.selected + r * a.topk;
  if (visible <= a.topk && !masked && (!write || all_blocks)) {  // nothing to choose
    for (int64_t j = 0; j < visible; ++j) selected[j] = static_cast<int32_t>(j);
    a.n_selected[r] = static_cast<int32_t>(visible);
    return;
  }

  float* keys = reinterpret_cast<float*>(scratch);
  float* scores = keys + kIndexKeyBlock * a.dim;
  KeptEntry* entries = reinterpret_cast<KeptEntry*>(scores + kIndexKeyBlock);
  Selection rows = {entries, a.topk, 0, -1};
  BlockMaximum maximum = {0, {entries + 2 * a.topk, a.candidate_blocks, 0, -1}};
  int32_t* candidates = a.candidates + r * a.candidate_blocks;
  KeyCursor cursor = {
      masked ? candidates : nullptr, masked ? a.n_candidates[r] : 0, a.block_size, visible, 0, 0};
  int32_t index[kIndexKeyBlock];
  for (int64_t n = NextKeys(&cursor, index); n > 0; n = NextKeys(&cursor, index)) {
    DecodeKeys(a.keys, a.row_seqs[r], index, n, a.dim, keys);
    ScoreKeys(a, r, keys, n, scores);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t order = ScoreOrder(scores[i]);
      Offer(&rows, order, index[i]);
      if (write && !all_blocks) OfferBlocks(a, visible, index[i], order, &maximum);
    }
  }
  a.n_selected[r] = Finish(&rows, selected);
  if (write && !all_blocks) a.n_candidates[r] = Finish(&maximum.blocks, candidates);
}

void IndexSelect(const IndexSelectArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r)
    SelectRow(a, r, a.scratch + w.tid * a.scratch_stride);
}
