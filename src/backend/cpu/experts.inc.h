// Routed and shared experts. Included inside namespace deepinfer::cpu::<isa>, after matrix.inc.h.

// A counting sort: begin[] first holds the number of pairs of every expert, then where the next
// pair of it goes.
void GroupPairs(const GroupPairsArgs& a, Work work) {
  if (work.tid != 0) return;
  const ExpertPairs& p = a.pairs;
  const int64_t n_pairs = int64_t{*a.n_rows} * a.topk;
  for (int64_t e = 0; e <= a.n_experts; ++e) p.begin[e] = 0;
  for (int64_t i = 0; i < n_pairs; ++i) ++p.begin[a.ids[i]];
  for (int32_t e = 0, start = 0; e < a.n_experts; ++e) {
    const int32_t count = p.begin[e];
    p.begin[e] = start;
    start += count;
  }
  for (int64_t i = 0; i < n_pairs; ++i) {
    const int32_t slot = p.begin[a.ids[i]]++;
    p.rows[slot] = static_cast<int32_t>(i / a.topk);
    p.weights[slot] = a.weights[i];
  }
  // Now begin[e] is the end of expert e. Only experts with pairs stay; n_active <= e, so nothing
  // unread is overwritten.
  int32_t n_active = 0, start = 0;
  for (int32_t e = 0; e < a.n_experts; ++e) {
    const int32_t end = p.begin[e];
    if (end == start) continue;
    p.active[n_active] = e;
    p.begin[n_active++] = start;
    start = end;
  }
  p.begin[n_active] = start;
  *p.n_active = n_active;
}

// Does a scale of the tensor mean NaN? Weights without scales have none.
static bool HasNanScale(const WeightView& w) {
  if (w.scale == nullptr) return false;
  const int64_t rows = w.dtype == DType::kFp8Tile32 ? (w.rows + w.scale_row0 + 31) / 32 : w.rows;
  for (int64_t r = 0; r < rows; ++r) {
    if (HasByte255(w.scale + r * w.scale_stride_bytes, w.cols / 32)) return true;
  }
  return false;
}

void CheckExperts(const CheckExpertsArgs& a, Work work) {
  for (int64_t i = work.tid; i < *a.pairs.n_active; i += work.n) {
    const int32_t e = a.pairs.active[i];
    if (a.checked[e] != 0) continue;
    const WeightView* tensors[3] = {&a.experts[e].w1, &a.experts[e].w3, &a.experts[e].w2};
    bool sound = true;
    for (int t = 0; t < 3; ++t) {
      if (!HasNanScale(*tensors[t])) continue;
      ReportFault(a.fault, Fault::kExpertScaleNan, a.layer, int64_t{e} * 3 + t);
      sound = false;
    }
    a.checked[e] = sound ? 1 : 0;
  }
}

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

// Columns [c, c + 32) of the activations of pairs [begin, begin + n), n <= kBlockRows.
static void GateUpBlock(const GateUpArgs& a, const ExpertWeights& expert, int64_t begin, int64_t n,
                        int64_t c) {
  alignas(64) float gate[kBlockRows * kActColumns];
  alignas(64) float up[kBlockRows * kActColumns];
  const float* x[kBlockRows];
  for (int64_t m = 0; m < n; ++m) x[m] = a.x + int64_t{a.pairs.rows[begin + m]} * a.hidden;
  for (int j = 0; j < kActColumns; j += kPanel) {
    DotPanel(expert.w1, a.decode, c + j, kPanel, x, n, 0, gate + j, kActColumns);
    DotPanel(expert.w3, a.decode, c + j, kPanel, x, n, 0, up + j, kActColumns);
  }
  for (int64_t m = 0; m < n; ++m) {
    const float weight = a.pairs.weights != nullptr ? a.pairs.weights[begin + m] : 1.0f;
    float* act = a.act + (begin + m) * a.inter + c;
    Activate(a, gate + m * kActColumns, up + m * kActColumns, weight, act);
  }
}

void GateUp(const GateUpArgs& a, Work work) {
  const Span columns = SplitWork(a.inter, kActColumns, work);
  for (int64_t i = 0; i < *a.pairs.n_active; ++i) {
    const ExpertWeights& expert = a.experts[a.pairs.active[i]];
    const int64_t end = a.pairs.begin[i + 1];
    for (int64_t p = a.pairs.begin[i]; p < end; p += kBlockRows) {
      for (int64_t c = columns.begin; c < columns.end; c += kActColumns) {
        GateUpBlock(a, expert, p, Smaller(kBlockRows, end - p), c);
      }
    }
  }
}

// Adds columns [o, o + n_out) of w2 . act of pairs [begin, begin + n) to the rows of the pairs.
static void DownBlock(const DownArgs& a, const WeightView& w2, int64_t begin, int64_t n, int64_t o,
                      int64_t n_out) {
  alignas(64) float sums[kBlockRows * kPanel];
  const float* x[kBlockRows];
  for (int64_t m = 0; m < n; ++m) x[m] = a.act + (begin + m) * a.inter;
  DotPanel(w2, WeightDecode::kAsStored, o, n_out, x, n, 0, sums, kPanel);
  RoundSums(a.round, n, sums);
  for (int64_t m = 0; m < n; ++m) {
    float* y = a.y + int64_t{a.pairs.rows[begin + m]} * a.hidden + o;
    for (int64_t j = 0; j < n_out; ++j) y[j] += sums[m * kPanel + j];
  }
}

void Down(const DownArgs& a, Work work) {
  const Span columns = SplitWork(a.hidden, 32, work);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t o = columns.begin; o < columns.end; ++o) a.y[r * a.hidden + o] = 0.0f;
  }
  for (int64_t i = 0; i < *a.pairs.n_active; ++i) {  // ascending id
    const WeightView& w2 = a.experts[a.pairs.active[i]].w2;
    const int64_t end = a.pairs.begin[i + 1];
    for (int64_t p = a.pairs.begin[i]; p < end; p += kBlockRows) {
      for (int64_t o = columns.begin; o < columns.end; o += kPanel) {
        DownBlock(a, w2, p, Smaller(kBlockRows, end - p), o, Smaller(kPanel, columns.end - o));
      }
    }
  }
}
