// One layer: single-pass hyper-connections around attention and experts (spec 01 section 4).
#include <fmt/format.h>

#include "model/parts.h"

namespace deepinfer {

namespace {

// The mixes of one sublayer. "Single-pass": the pre-mix made here collapses the streams for the
// *next* sublayer.
struct Mixes {
  float *pre, *post, *comb;
};

void AddMix(const StepContext& s, const char* name, const MixWeights& w, const Mixes& out) {
  s.b.Add(name, s.k.mix,
          MixArgs{.n_rows = s.n_rows(),
                  .streams = s.streams,
                  .raw = s.raw_mix,
                  .base = w.base,
                  .scale = w.scale,
                  .pre = out.pre,
                  .post = out.post,
                  .comb = out.comb,
                  .n_streams = static_cast<int32_t>(s.c.hc_mult),
                  .hidden = static_cast<int32_t>(s.c.hidden_size),
                  .iterations = static_cast<int32_t>(s.c.hc_sinkhorn_iters),
                  .hc_eps = s.c.hc_eps,
                  .rms_eps = s.c.rms_norm_eps});
}

void AddExpand(const StepContext& s, const float* out, const Mixes& mixes, Start start) {
  s.b.Add("hc.expand", s.k.expand,
          ExpandArgs{.n_rows = s.n_rows(),
                     .out = out,
                     .post = mixes.post,
                     .comb = mixes.comb,
                     .streams = s.streams,
                     .n_streams = static_cast<int32_t>(s.c.hc_mult),
                     .hidden = static_cast<int32_t>(s.c.hidden_size),
                     .round = s.num.bf16},
          start);
}

void ProbeMixes(const StepContext& s, int layer, const char* site, const Mixes& m) {
  const int64_t n = s.c.hc_mult;
  const std::string prefix = LayerName(layer, site);
  s.b.AddProbe(prefix + "_pre", m.pre, s.n_rows(), n);
  s.b.AddProbe(prefix + "_post", m.post, s.n_rows(), n);
  s.b.AddProbe(prefix + "_comb", m.comb, s.n_rows(), n * n);
}

}  // namespace

std::string LayerName(int layer, const char* what) {
  return fmt::format("layers.{}.{}", layer, what);
}

void AddCollapse(const StepContext& s, const char* name, const float* pre, Start start) {
  s.b.Add(name, s.k.collapse,
          CollapseArgs{.n_rows = s.n_rows(),
                       .streams = s.streams,
                       .pre = pre,
                       .y = s.collapsed,
                       .n_streams = static_cast<int32_t>(s.c.hc_mult),
                       .hidden = static_cast<int32_t>(s.c.hidden_size),
                       .round = s.num.bf16},
          start);
}

void AddBlock(const StepContext& s, int layer) {
  const LayerWeights& w = s.m.weights.layers[static_cast<size_t>(layer)];
  const int64_t n = s.c.hc_mult, hidden = s.c.hidden_size;
  const auto mark = s.b.memory().Save();
  float* x = s.b.Temp<float>("x", s.rows() * hidden);
  float* xq = s.QuantisedTemp("xq", hidden);
  float* out = s.b.Temp<float>("sublayer_out", s.rows() * hidden);
  float* post = s.b.Temp<float>("hc.post", s.rows() * n);
  float* comb = s.b.Temp<float>("hc.comb", s.rows() * n * n);
  const Mixes attn{s.b.Temp<float>("hc.pre", s.rows() * n), post, comb};
  const Mixes ffn{s.pre, post, comb};

  s.Linear("hc_attn.fn", s.streams, w.hc_attn.fn, s.raw_mix, {.exact = true});
  s.RmsNorm("hc.norm", s.collapsed, w.attn_norm, x, xq, hidden, Start::kBeside);
  s.b.AddProbe(LayerName(layer, "attn_in"), x, s.n_rows(), hidden);
  AddMix(s, "hc_attn.mix", w.hc_attn, attn);
  ProbeMixes(s, layer, "attn", attn);
  const Start expand_start = AddAttention(s, layer, x, xq != nullptr ? xq : x, out);
  s.b.AddProbe(LayerName(layer, "attn_out"), out, s.n_rows(), hidden);
  AddExpand(s, out, attn, expand_start);

  AddCollapse(s, "hc.collapse", attn.pre, Start::kOnOwn);
  s.Linear("hc_ffn.fn", s.streams, w.hc_ffn.fn, s.raw_mix, {.exact = true});
  float* xq_ffn = s.num.fp8_expert_inputs ? xq : nullptr;
  s.RmsNorm("hc.norm", s.collapsed, w.ffn_norm, x, xq_ffn, hidden, Start::kBeside);
  s.b.AddProbe(LayerName(layer, "ffn_in"), x, s.n_rows(), hidden);
  AddMix(s, "hc_ffn.mix", w.hc_ffn, ffn);
  ProbeMixes(s, layer, "ffn", ffn);
  AddMoe(s, layer, x, xq_ffn != nullptr ? xq_ffn : x, out);
  s.b.AddProbe(LayerName(layer, "ffn_out"), out, s.n_rows(), hidden);
  AddExpand(s, out, ffn, Start::kOnOwn);
  s.b.AddProbe(LayerName(layer, "output"), s.streams, s.n_rows(), n * hidden);
  s.b.memory().Restore(mark);
}

}  // namespace deepinfer
