#include <algorithm>
#include <cmath>

#include "ops/ref/reference.h"

namespace deepinfer::ref {

namespace {

float RouterScore(float z) { return std::sqrt(z > 20.0f ? z : std::log1p(std::exp(z))); }

}  // namespace

void Route(const RouteArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r) {
    const float* logits = a.logits + r * a.n_experts;
    int32_t* ids = a.ids + r * a.topk;
    float* weights = a.weights + r * a.topk;
    bool nan = false;
    float total = 0;
    for (int64_t i = 0; i < a.topk; ++i) {
      float best = -INFINITY;
      ids[i] = -1;
      for (int32_t e = 0; e < a.n_experts; ++e) {
        if (std::find(ids, ids + i, e) != ids + i) continue;
        float biased = RouterScore(logits[e]) + LoadF32(a.bias + 4 * int64_t{e});
        if (std::isnan(biased)) nan = true, biased = -INFINITY;
        if (ids[i] < 0 || biased > best) best = biased, ids[i] = e;
      }
      weights[i] = RouterScore(logits[ids[i]]);
      total += weights[i];
    }
    for (int64_t i = 0; i < a.topk; ++i) {
      if (a.normalize) weights[i] /= total + 1e-20f;
      weights[i] *= nan ? NAN : a.scaling;
    }
  }
}

void GroupPairs(const GroupPairsArgs& a, Work w) {
  if (w.tid != w.n - 1) return;
  const ExpertPairs& p = a.pairs;
  const int64_t n_pairs = int64_t{*a.n_rows} * a.topk;
  int32_t n_active = 0, n = 0;
  for (int32_t e = 0; e < a.n_experts; ++e) {
    const int32_t first = n;
    for (int64_t i = 0; i < n_pairs; ++i) {
      if (a.ids[i] != e) continue;
      p.rows[n] = static_cast<int32_t>(i / a.topk);
      p.weights[n++] = a.weights[i];
    }
    if (n == first) continue;
    p.active[n_active] = e;
    p.begin[n_active++] = first;
  }
  p.begin[n_active] = n;
  *p.n_active = n_active;
}

void CheckExperts(const CheckExpertsArgs& a, Work w) {
  for (int64_t i = w.tid; i < *a.pairs.n_active; i += w.n) {
    const int32_t e = a.pairs.active[i];
    if (a.checked[e]) continue;
    const WeightView* views[3] = {&a.experts[e].w1, &a.experts[e].w3, &a.experts[e].w2};
    bool sound = true;
    for (int v = 0; v < 3; ++v) {
      const uint8_t* scale = views[v]->scale;
      const int64_t bytes = ScaleRows(views[v]) * views[v]->scale_stride_bytes;
      if (std::find(scale, scale + bytes, uint8_t{255}) == scale + bytes) continue;
      ReportFault(a.fault, Fault::kExpertScaleNan, a.layer, int64_t{e} * 3 + v);
      sound = false;
    }
    a.checked[e] = sound;
  }
}

namespace {

// NaN passes both bounds.
float ClampGate(float g, float limit) { return g > limit ? limit : g; }
float ClampUp(float u, float limit) { return u > limit ? limit : u < -limit ? -limit : u; }
float Silu(float x) { return x / (1.0f + std::exp(-x)); }

}  // namespace

void GateUp(const GateUpArgs& a, Work w) {
  const Span columns = SplitWork(a.inter, 32, w);
  float* row = a.scratch + w.tid * a.scratch_stride;
  const auto product = [&](int64_t pair) {
    return RoundIf(a.round, Dot(a.x + int64_t{a.pairs.rows[pair]} * a.hidden, row, a.hidden));
  };
  for (int64_t i = 0; i < *a.pairs.n_active; ++i) {
    const ExpertWeights& expert = a.experts[a.pairs.active[i]];
    const int64_t begin = a.pairs.begin[i], end = a.pairs.begin[i + 1];
    for (int64_t o = columns.begin; o < columns.end; ++o) {
      DecodeWeightRow(expert.w1, o, a.decode, row);
      for (int64_t p = begin; p < end; ++p) a.act[p * a.inter + o] = product(p);
      DecodeWeightRow(expert.w3, o, a.decode, row);
      for (int64_t p = begin; p < end; ++p) {
        float gate = a.act[p * a.inter + o], up = product(p);
        if (a.limit > 0) gate = ClampGate(gate, a.limit), up = ClampUp(up, a.limit);
        const float weight = a.pairs.weights != nullptr ? a.pairs.weights[p] : 1.0f;
        a.act[p * a.inter + o] = RoundIf(a.round, Silu(gate) * up * weight);
      }
    }
    if (a.fp8_max <= 0 || columns.begin == columns.end) continue;
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t c = columns.begin; c < columns.end; c += 32) {
        uint8_t packed[33];
        EncodeRow(RowFormat::kFp8Block32, a.act + p * a.inter + c, 32, a.fp8_max, packed);
        DecodeRow(RowFormat::kFp8Block32, packed, 32, a.act + p * a.inter + c);
      }
    }
  }
}

void Down(const DownArgs& a, Work w) {
  const Span columns = SplitWork(a.hidden, 32, w);
  float* row = a.scratch + w.tid * a.scratch_stride;
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    std::fill(a.y + r * a.hidden + columns.begin, a.y + r * a.hidden + columns.end, 0.0f);
  }
  for (int64_t i = 0; i < *a.pairs.n_active; ++i) {
    const WeightView& w2 = a.experts[a.pairs.active[i]].w2;
    for (int64_t o = columns.begin; o < columns.end; ++o) {
      DecodeWeightRow(w2, o, WeightDecode::kAsStored, row);
      for (int64_t p = a.pairs.begin[i]; p < a.pairs.begin[i + 1]; ++p) {
        const float y = RoundIf(a.round, Dot(a.act + p * a.inter, row, a.inter));
        a.y[int64_t{a.pairs.rows[p]} * a.hidden + o] += y;
      }
    }
  }
}

}  // namespace deepinfer::ref
