// Routed and shared experts. Included inside namespace deepinfer::cpu::<isa>, after matrix.inc.h
// or tiles.inc.h.

constexpr int kActColumns = 32;  // outputs of w1 and w3 at a time: one block of the Q8 quantiser

static inline Vec Silu(Vec x) { return x / (Set(1.0f) + Exp(Zero() - x)); }

// One pair's block of activations, from its gate and up products. Min and Max let NaN pass.
static void Activate(const GateUpArgs& a, const float* gate, const float* up, float weight,
                     float* act) {
  alignas(64) float block[kActColumns];
  for (int i = 0; i < kActColumns; i += kLanes) {
    Vec g = RoundIf(a.round, Load(gate + i)), u = RoundIf(a.round, Load(up + i));
    if (a.limit > 0) {
      g = Min(Set(a.limit), g);
      u = Max(Set(-a.limit), Min(Set(a.limit), u));
    }
    Store(block + i, RoundIf(a.round, Silu(g) * u * Set(weight)));
  }
  if (a.fp8_max > 0) QuantiseInto(RowFormat::kFp8Block32, block, a.fp8_max, block);
  memcpy(act, block, sizeof block);
}

// Columns [c, c + 32) of the activations of the pairs from `begin` on, whose rows are x. Columns
// next_c of `next` follow.
static void GateUpBlock(const GateUpArgs& a, const ExpertWeights& expert, Inputs x, int64_t begin,
                        int64_t c, const ExpertWeights& next, int64_t next_c) {
  alignas(64) float gate[kBlockRows * kActColumns];
  alignas(64) float up[kBlockRows * kActColumns];
  for (int j = 0; j < kActColumns; j += kPanel) {
    ComesNext(&x, expert.w3, c + j);
    DotPanel(expert.w1, a.decode, c + j, kPanel, x, gate + j, kActColumns);
    ComesNext(&x, next.w1, next_c);
    DotPanel(expert.w3, a.decode, c + j, kPanel, x, up + j, kActColumns);
  }
  for (int64_t m = 0; m < x.n; ++m) {
    const float weight = a.pairs.weights != nullptr ? a.pairs.weights[begin + m] : 1.0f;
    float* act = a.act + (begin + m) * a.inter + c;
    Activate(a, gate + m * kActColumns, up + m * kActColumns, weight, act);
  }
}

// The expert after the i-th active one: the same if it is not finished, or the last.
static inline const ExpertWeights& NextExpert(const ExpertPairs& pairs,
                                              const ExpertWeights* experts, int64_t i, bool more) {
  return experts[pairs.active[more || i + 1 == *pairs.n_active ? i : i + 1]];
}

static void GateUpPanels(const GateUpArgs& a, Work work) {
  const Span columns = SplitWork(a.inter, kActColumns, work);
  if (columns.begin == columns.end) return;
  const float* x[kBlockRows];
  for (int64_t i = 0; i < *a.pairs.n_active; ++i) {
    const ExpertWeights& expert = a.experts[a.pairs.active[i]];
    const int64_t end = a.pairs.begin[i + 1];
    for (int64_t p = a.pairs.begin[i]; p < end; p += kBlockRows) {
      const int64_t n = Smaller(kBlockRows, end - p);
      for (int64_t m = 0; m < n; ++m) x[m] = a.x + int64_t{a.pairs.rows[p + m]} * a.hidden;
      const Inputs inputs = Prepare(expert.w1, x, n, a.scratch + work.tid * a.scratch_stride);
      const ExpertWeights& next = NextExpert(a.pairs, a.experts, i, p + kBlockRows < end);
      for (int64_t c = columns.begin; c < columns.end; c += kActColumns) {
        const bool last = c + kActColumns >= columns.end;
        GateUpBlock(a, expert, inputs, p, c, last ? next : expert,
                    last ? columns.begin : c + kActColumns);
      }
    }
  }
}

// Adds outputs o ... o + n_out - 1 of w2 to the rows of the pairs from `begin` on.
static void DownPanel(const DownArgs& a, const WeightView& w2, const Inputs& x, int64_t begin,
                      int64_t o, int64_t n_out) {
  alignas(64) float sums[kBlockRows * kPanel];
  DotPanel(w2, WeightDecode::kAsStored, o, n_out, x, sums, kPanel);
  if (a.round) RoundInPlace(sums, x.n * kPanel);
  for (int64_t m = 0; m < x.n; ++m) {
    float* y = a.y + int64_t{a.pairs.rows[begin + m]} * a.hidden + o;
    for (int64_t j = 0; j < n_out; ++j) y[j] += sums[m * kPanel + j];
  }
}

static void DownPanels(const DownArgs& a, Work work) {
  const Span columns = SplitWork(a.hidden, 32, work);
  if (columns.begin == columns.end) return;
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t o = columns.begin; o < columns.end; ++o) a.y[r * a.hidden + o] = 0.0f;
  }
  const float* x[kBlockRows];
  for (int64_t i = 0; i < *a.pairs.n_active; ++i) {  // ascending id
    const WeightView& w2 = a.experts[a.pairs.active[i]].w2;
    const int64_t end = a.pairs.begin[i + 1];
    for (int64_t p = a.pairs.begin[i]; p < end; p += kBlockRows) {
      const int64_t n = Smaller(kBlockRows, end - p);
      for (int64_t m = 0; m < n; ++m) x[m] = a.act + (p + m) * a.inter;
      Inputs inputs = Prepare(w2, x, n, a.scratch + work.tid * a.scratch_stride);
      const WeightView& next = NextExpert(a.pairs, a.experts, i, p + kBlockRows < end).w2;
      for (int64_t o = columns.begin; o < columns.end; o += kPanel) {
        const bool last = o + kPanel >= columns.end;
        ComesNext(&inputs, last ? next : w2, last ? columns.begin : o + kPanel);
        DownPanel(a, w2, inputs, p, o, Smaller(kPanel, columns.end - o));
      }
    }
  }
}
