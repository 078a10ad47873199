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

void AddMix(const StepContext& s, const char* product, const char* name, const MixWeights& w,
            const Mixes& out) {
  const int64_t n = s.c.hc_mult;
  const auto mark = s.b.memory().Save();
  float* raw = s.b.Temp<float>("hc.raw", s.rows() * (2 + n) * n);
  s.Linear(product, s.streams, w.fn, raw, {.exact = true});
  s.b.Add(name, s.k.mix,
          MixArgs{.n_rows = s.n_rows(),
                  .streams = s.streams,
                  .raw = raw,
                  .base = w.base,
                  .scale = w.scale,
                  .pre = out.pre,
                  .post = out.post,
                  .comb = out.comb,
                  .n_streams = static_cast<int32_t>(n),
                  .hidden = static_cast<int32_t>(s.c.hidden_size),
                  .iterations = static_cast<int32_t>(s.c.hc_sinkhorn_iters),
                  .hc_eps = s.c.hc_eps,
                  .rms_eps = s.c.rms_norm_eps});
  s.b.memory().Restore(mark);
}

// x = norm(sum_s pre[s] H[s])
void AddSublayerInput(const StepContext& s, const float* pre, const uint8_t* norm, float* x) {
  s.b.Add("hc.collapse", s.k.collapse,
          CollapseArgs{.n_rows = s.n_rows(),
                       .streams = s.streams,
                       .pre = pre,
                       .y = x,
                       .n_streams = static_cast<int32_t>(s.c.hc_mult),
                       .hidden = static_cast<int32_t>(s.c.hidden_size),
                       .round = s.num.bf16});
  s.RmsNorm("hc.norm", x, norm, x, s.c.hidden_size);
}

void AddExpand(const StepContext& s, const float* out, const Mixes& mixes) {
  s.b.Add("hc.expand", s.k.expand,
          ExpandArgs{.n_rows = s.n_rows(),
                     .out = out,
                     .post = mixes.post,
                     .comb = mixes.comb,
                     .streams = s.streams,
                     .n_streams = static_cast<int32_t>(s.c.hc_mult),
                     .hidden = static_cast<int32_t>(s.c.hidden_size),
                     .round = s.num.bf16});
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

void AddBlock(const StepContext& s, int layer) {
  const LayerWeights& w = s.m.weights.layers[static_cast<size_t>(layer)];
  const int64_t n = s.c.hc_mult, hidden = s.c.hidden_size;
  const auto mark = s.b.memory().Save();
  float* x = s.b.Temp<float>("x", s.rows() * hidden);
  float* out = s.b.Temp<float>("sublayer_out", s.rows() * hidden);
  float* post = s.b.Temp<float>("hc.post", s.rows() * n);
  float* comb = s.b.Temp<float>("hc.comb", s.rows() * n * n);
  const Mixes attn{s.b.Temp<float>("hc.pre", s.rows() * n), post, comb};
  const Mixes ffn{s.pre, post, comb};

  AddMix(s, "hc_attn.fn", "hc_attn.mix", w.hc_attn, attn);
  ProbeMixes(s, layer, "attn", attn);
  AddSublayerInput(s, s.pre, w.attn_norm, x);
  s.b.AddProbe(LayerName(layer, "attn_in"), x, s.n_rows(), hidden);
  AddAttention(s, layer, x, out);
  s.b.AddProbe(LayerName(layer, "attn_out"), out, s.n_rows(), hidden);
  AddExpand(s, out, attn);

  AddMix(s, "hc_ffn.fn", "hc_ffn.mix", w.hc_ffn, ffn);
  ProbeMixes(s, layer, "ffn", ffn);
  AddSublayerInput(s, attn.pre, w.ffn_norm, x);
  s.b.AddProbe(LayerName(layer, "ffn_in"), x, s.n_rows(), hidden);
  AddMoe(s, layer, x, out);
  s.b.AddProbe(LayerName(layer, "ffn_out"), out, s.n_rows(), hidden);
  AddExpand(s, out, ffn);
  s.b.AddProbe(LayerName(layer, "output"), s.streams, s.n_rows(), n * hidden);
  s.b.memory().Restore(mark);
}

}  // namespace deepinfer
