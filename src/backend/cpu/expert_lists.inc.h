// Which experts a step uses, and whether they are sound. Included inside namespace
// deepinfer::cpu::<isa>, after the instruction set's weights_*.inc.h.

// A counting sort: begin[] first holds the number of pairs of every expert, then where the next
// pair of it goes.
void GroupPairs(const GroupPairsArgs& a, Work work) {
  if (work.tid != work.n - 1) return;
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
  const int64_t rows = ScaleRows(&w);
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

// Do all experts of the step consist of fp4 weights?
static bool AllFp4(const ExpertPairs& pairs, const ExpertWeights* experts) {
  bool all = true;
  for (int32_t i = 0; i < *pairs.n_active; ++i) {
    const ExpertWeights& e = experts[pairs.active[i]];
    all &= e.w1.dtype == DType::kFp4Row32 && e.w3.dtype == DType::kFp4Row32 &&
           e.w2.dtype == DType::kFp4Row32;
  }
  return all;
}
