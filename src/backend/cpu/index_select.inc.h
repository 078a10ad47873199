// Index scores and selection. Included inside namespace deepinfer::cpu::<isa>, after
// index_selection.inc.h and a text that scores keys.
//
// Rows of the same sequence that follow each other form groups: keys stream by in blocks of 64 and
// are decoded once for the rows of a group. All threads together walk over one list, the keys of
// the first group, of the second, and so on, and every thread takes the same share of the work,
// also when there are fewer rows than threads. A group that several threads have worked on is
// joined in the second phase.

// ---- what is asked ----

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

static inline bool NeedsScores(const RowTask& t) { return t.choose_rows || t.choose_blocks; }

// Keys are shared by threads in units: whole blocks of candidates, so that each block's best score
// is found by one thread, and about kIndexKeyBlock keys.
static inline int64_t BlocksOfAUnit(const IndexSelectArgs& a) {
  return a.block_size > 0 ? (kIndexKeyBlock + a.block_size - 1) / a.block_size : 1;
}
static inline int64_t KeysOfAUnit(const IndexSelectArgs& a) {
  return a.block_size > 0 ? BlocksOfAUnit(a) * a.block_size : kIndexKeyBlock;
}
static inline int64_t UnitsOf(const IndexSelectArgs& a, const RowTask& t) {
  const int64_t count = t.masked ? a.n_candidates[t.row] : t.visible;
  const int64_t unit = t.masked ? BlocksOfAUnit(a) : KeysOfAUnit(a);
  return (count + unit - 1) / unit;
}

// Rows [first, first + n) share a sequence and look at all its keys, or a row with candidates of
// its own is alone. A row without a choice is alone too, with no units.
struct RowGroup {
  int64_t first, n;
  int64_t visible, units;  // of the row that sees most
};

static inline RowGroup GroupAt(const IndexSelectArgs& a, int64_t r) {
  const RowTask t = TaskOf(a, r);
  RowGroup g = {r, 1, t.visible, 0};
  if (!NeedsScores(t)) return g;
  g.units = UnitsOf(a, t);
  for (; !t.masked && g.n < kIndexGroupRows && r + g.n < *a.n_rows; ++g.n) {
    const RowTask next = TaskOf(a, r + g.n);
    if (a.row_seqs[r + g.n] != a.row_seqs[r] || !NeedsScores(next) || next.masked) break;
    if (next.visible > g.visible) g.visible = next.visible, g.units = UnitsOf(a, next);
  }
  return g;
}

// ---- who does what ----

// Work is counted in units of keys times rows.
static inline int64_t TotalWork(const IndexSelectArgs& a) {
  int64_t total = 0;
  for (int64_t r = 0; r < *a.n_rows;) {
    const RowGroup g = GroupAt(a, r);
    total += g.units * g.n;
    r += g.n;
  }
  return total;
}

// The units of a group that begin inside the share of a thread; `before` is the work of all groups
// before it.
static inline Span UnitsInShare(const RowGroup& g, int64_t before, int64_t total, Work w) {
  const int64_t begin = total * w.tid / w.n - before, end = total * (w.tid + 1) / w.n - before;
  const int64_t first = begin > 0 ? (begin + g.n - 1) / g.n : 0;
  const int64_t last = end > 0 ? (end + g.n - 1) / g.n : 0;
  return {Smaller(first, g.units), Smaller(last, g.units)};
}

// ---- keys ----

// The keys of a part of a group, ascending.
struct KeyCursor {
  const int32_t* blocks;  // candidate blocks; null: keys next ... end - 1
  int64_t block_size, visible;
  int64_t next, end;  // in keys, or in candidate blocks
  int64_t offset;     // inside blocks[next]
};

static inline KeyCursor KeysOfUnits(const IndexSelectArgs& a, const RowGroup& g, Span units) {
  if (TaskOf(a, g.first).masked) {
    const int64_t unit = BlocksOfAUnit(a);
    const int32_t* blocks = a.candidates + g.first * a.candidate_blocks;
    const int64_t end = Smaller(units.end * unit, a.n_candidates[g.first]);
    return {blocks, a.block_size, g.visible, units.begin * unit, end, 0};
  }
  const int64_t unit = KeysOfAUnit(a), end = Smaller(units.end * unit, g.visible);
  return {nullptr, a.block_size, g.visible, units.begin * unit, end, 0};
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

// ---- what is kept ----

// What a thread keeps of its part of a row, at a fixed place of its scratch: the merge reads it.
struct RowState {
  Selection rows, blocks;
  uint32_t block_best;  // of the candidate block that is streaming by
};
static_assert(sizeof(RowState) <= kIndexRowStateBytes, "IndexSelectScratchBytes leaves this much");

// A thread holds at most one part of a group that another thread has begun and one that it has
// begun itself.
static inline RowState* StateOf(const IndexSelectArgs& a, int64_t tid, bool begun_here, int64_t i) {
  const int64_t row_bytes = IndexRowBytes(a.topk, a.candidate_blocks);
  uint8_t* states = a.scratch + tid * a.scratch_stride + IndexOperandBytes(a.heads, a.dim);
  return reinterpret_cast<RowState*>(states + ((begun_here ? kIndexGroupRows : 0) + i) * row_bytes);
}

static inline void StartRow(const IndexSelectArgs& a, RowState* s) {
  KeptEntry* entries =
      reinterpret_cast<KeptEntry*>(reinterpret_cast<uint8_t*>(s) + kIndexRowStateBytes);
  *s = {{entries, a.topk, 0, -1}, {entries + 2 * a.topk, a.candidate_blocks, 0, -1}, 0};
}

// Keys first ... first + n - 1 by their orders.
static inline void OfferBlocks(const IndexSelectArgs& a, const RowTask& t, int64_t first,
                               const uint32_t* orders, int64_t n, RowState* s) {
  for (int64_t k = 0; k < n;) {
    const int64_t block = (first + k) / a.block_size;
    const int64_t block_end = Smaller((block + 1) * a.block_size, t.visible) - first;
    for (; k < Smaller(n, block_end); ++k) {
      s->block_best = s->block_best < orders[k] ? orders[k] : s->block_best;
    }
    if (k < block_end) return;
    const bool newest = block == (t.visible - 1) / a.block_size;
    Offer(&s->blocks, newest ? kAlwaysKept : s->block_best, block);
    s->block_best = 0;
  }
}

// The first n of the keys that were scored.
static inline void KeepBest(const IndexSelectArgs& a, const RowTask& t, const float* scores,
                            const int32_t* index, int64_t n, RowState* s) {
  uint32_t orders[kIndexKeyBlock];
  for (int64_t i = 0; i < n; i += kLanes) {
    Store(reinterpret_cast<float*>(orders + i), FromBits(ScoreOrders(Load(scores + i))));
  }
  if (t.choose_rows) OfferScores(&s->rows, scores, orders, index, n);
  if (t.choose_blocks) OfferBlocks(a, t, index[0], orders, n, s);
}

// Scores the keys of some units for all rows of the group.
static void ScanUnits(const IndexSelectArgs& a, const RowGroup& g, Span units, int64_t tid) {
  const IndexOperands operands = PlaceOperands(a, a.scratch + tid * a.scratch_stride);
  const bool begun_here = units.begin == 0;
  for (int64_t i = 0; i < g.n; ++i) {
    StartRow(a, StateOf(a, tid, begun_here, i));
    PrepareRow(a, g.first + i, i, operands);
  }
  KeyCursor cursor = KeysOfUnits(a, g, units);
  int32_t index[kIndexKeyBlock];
  float scores[kIndexKeyBlock];
  for (int64_t n = NextKeys(&cursor, index); n > 0; n = NextKeys(&cursor, index)) {
    DecodeKeys(a, a.row_seqs[g.first], index, n, operands);
    for (int64_t i = 0; i < g.n; ++i) {
      const RowTask t = TaskOf(a, g.first + i);
      const int64_t seen = t.masked ? n : Smaller(n, t.visible - index[0]);
      if (seen <= 0) continue;
      ScoreKeys(a, t.row, i, operands, seen, scores);
      KeepBest(a, t, scores, index, seen, StateOf(a, tid, begun_here, i));
    }
  }
}

static inline void SelectAll(const IndexSelectArgs& a, const RowTask& t) {
  int32_t* selected = a.selected + t.row * a.topk;
  for (int64_t j = 0; j < t.visible; ++j) selected[j] = static_cast<int32_t>(j);
  a.n_selected[t.row] = static_cast<int32_t>(t.visible);
}

// A row without a choice.
static inline void WriteAll(const IndexSelectArgs& a, const RowTask& t) {
  SelectAll(a, t);
  if (a.mode == Candidates::kWrite) a.n_candidates[t.row] = -1;
}

static inline void WriteChoice(const IndexSelectArgs& a, const RowTask& t, RowState* s) {
  if (t.choose_rows) {
    a.n_selected[t.row] = Finish(&s->rows, a.selected + t.row * a.topk);
  } else {
    SelectAll(a, t);
  }
  if (a.mode != Candidates::kWrite) return;
  a.n_candidates[t.row] =
      t.choose_blocks ? Finish(&s->blocks, a.candidates + t.row * a.candidate_blocks) : -1;
}

// ---- both phases ----

static void SelectRows(const IndexSelectArgs& a, Work w) {
  const int64_t total = TotalWork(a);
  int64_t before = 0;
  for (int64_t r = 0; r < *a.n_rows;) {
    const RowGroup g = GroupAt(a, r);
    const Span units = UnitsInShare(g, before, total, w);
    if (g.units == 0 && r % w.n == w.tid) WriteAll(a, TaskOf(a, r));
    if (units.begin < units.end) ScanUnits(a, g, units, w.tid);
    for (int64_t i = 0; i < g.n && units.end - units.begin == g.units && g.units > 0; ++i) {
      WriteChoice(a, TaskOf(a, r + i), StateOf(a, w.tid, true, i));
    }
    before += g.units * g.n;
    r += g.n;
  }
}

// Joins the parts of row i of a group in ascending order of their keys.
static void MergeRow(const IndexSelectArgs& a, const RowGroup& g, int64_t i, int64_t before,
                     int64_t total, int n_threads) {
  RowState* all = nullptr;
  for (int tid = 0; tid < n_threads; ++tid) {
    const Span units = UnitsInShare(g, before, total, Work{tid, n_threads});
    if (units.begin == units.end) continue;
    RowState* part = StateOf(a, tid, units.begin == 0, i);
    if (all == nullptr) {
      all = part;
      continue;
    }
    Append(part->rows, &all->rows);
    Append(part->blocks, &all->blocks);
  }
  WriteChoice(a, TaskOf(a, g.first + i), all);
}

static void MergeRows(const IndexSelectArgs& a, Work w) {
  const int64_t total = TotalWork(a);
  int64_t before = 0;
  for (int64_t r = 0; r < *a.n_rows;) {
    const RowGroup g = GroupAt(a, r);
    const Span units = UnitsInShare(g, before, total, w);
    const int64_t mine = units.end - units.begin;
    if (mine > 0 && mine < g.units) {
      // The rows go around the threads that hold parts of them.
      int64_t holders = 0, place = 0;
      for (int tid = 0; tid < w.n; ++tid) {
        const Span other = UnitsInShare(g, before, total, Work{tid, w.n});
        if (tid == w.tid) place = holders;
        holders += other.begin < other.end;
      }
      for (int64_t i = place; i < g.n; i += holders) MergeRow(a, g, i, before, total, w.n);
    }
    before += g.units * g.n;
    r += g.n;
  }
}
