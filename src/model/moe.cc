// Router, routed experts and the shared expert (spec 01 section 7).
#include "model/parts.h"
#include "model/uniform_route.h"

namespace deepinfer {

namespace {

void AddRouter(const StepContext& s, int layer, const FfnWeights& w, const float* x) {
  const int64_t n = s.c.n_experts(layer), topk = s.c.experts_per_tok(layer);
  float* logits = s.b.Temp<float>("moe.router_logits", s.rows() * n);
  int32_t* ids = s.b.Temp<int32_t>("moe.expert_ids", s.rows() * topk);
  float* weights = s.b.Temp<float>("moe.expert_weights", s.rows() * topk);
  s.Linear("moe.gate", x, w.gate, logits, {.exact = true});
  if (s.m.uniform_routing) {
    s.b.Add("moe.route", UniformRoute,
            UniformRouteArgs{.n_rows = s.n_rows(),
                             .tokens = s.in->ids,
                             .positions = s.in->positions,
                             .ids = ids,
                             .weights = weights,
                             .n_experts = static_cast<int32_t>(n),
                             .topk = static_cast<int32_t>(topk),
                             .layer = layer,
                             .scaling = s.c.routed_scaling_factor});
  } else {
    s.b.Add("moe.route", s.k.route,
            RouteArgs{.n_rows = s.n_rows(),
                      .logits = logits,
                      .bias = w.bias,
                      .ids = ids,
                      .weights = weights,
                      .n_experts = static_cast<int32_t>(n),
                      .topk = static_cast<int32_t>(topk),
                      .normalize = topk > 1,
                      .scaling = s.c.routed_scaling_factor});
  }
  s.b.AddProbe(LayerName(layer, "router_ids"), ids, s.n_rows(), topk);
  s.b.AddProbe(LayerName(layer, "router_weights"), weights, s.n_rows(), topk);
  s.b.Add("moe.group_pairs", s.k.group_pairs,
          GroupPairsArgs{.n_rows = s.n_rows(),
                         .ids = ids,
                         .weights = weights,
                         .n_experts = static_cast<int32_t>(n),
                         .topk = static_cast<int32_t>(topk),
                         .pairs = s.routed});
}

// Do inputs and activations of the experts come from the Q8 quantiser?
bool QuantisesExperts(const Numerics& num) { return num.fp8_activations && num.fp8_expert_inputs; }

// act [pairs, inter] of the experts in `pairs`.
void AddGateUp(const StepContext& s, const char* name, const ExpertPairs& pairs,
               const ExpertWeights* experts, const float* x, float* act) {
  const bool quantise = QuantisesExperts(s.num);
  s.b.Add(name, s.k.gate_up,
          GateUpArgs{.pairs = pairs,
                     .experts = experts,
                     .x = x,
                     .act = act,
                     .hidden = static_cast<int32_t>(s.c.hidden_size),
                     .inter = static_cast<int32_t>(s.c.moe_intermediate_size),
                     .limit = s.c.swiglu_limit,
                     .fp8_max = quantise ? s.num.fp8_max : 0.0f,
                     .decode = s.num.halved_fp8_weights ? WeightDecode::kHalvedFp8
                                                        : WeightDecode::kAsStored,
                     .round = s.num.bf16,
                     .bf16_inputs = s.num.bf16,
                     .fp8_inputs = quantise,
                     .scratch = s.scratch,
                     .scratch_stride = s.scratch_stride});
}

}  // namespace

void AddMoe(const StepContext& s, int layer, const float* x, float* out) {
  const FfnWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].ffn;
  const int64_t hidden = s.c.hidden_size, inter = s.c.moe_intermediate_size;
  const auto mark = s.b.memory().Save();
  AddRouter(s, layer, w, x);
  s.b.Add("moe.check_experts", s.k.check_experts,
          CheckExpertsArgs{.pairs = s.routed,
                           .experts = w.experts.data(),
                           .checked = s.m.checked_experts + layer * s.c.max_experts(),
                           .layer = layer,
                           .fault = s.m.fault});
  const float* xq = s.num.fp8_expert_inputs ? s.Quantised("moe.quant_x", x, hidden) : x;

  float* y = s.b.Temp<float>("moe.routed", s.rows() * hidden);
  float* shared = s.b.Temp<float>("moe.shared", s.rows() * hidden);
  float* act = s.b.Temp<float>("moe.act", s.rows() * s.c.experts_per_tok(layer) * inter);
  AddGateUp(s, "moe.experts_gate_up", s.routed, w.experts.data(), xq, act);
  s.b.Add("moe.experts_down", s.k.down,
          DownArgs{.n_rows = s.n_rows(),
                   .pairs = s.routed,
                   .experts = w.experts.data(),
                   .act = act,
                   .y = y,
                   .hidden = static_cast<int32_t>(hidden),
                   .inter = static_cast<int32_t>(inter),
                   .round = s.num.bf16,
                   .bf16_inputs = s.num.bf16,
                   .fp8_inputs = QuantisesExperts(s.num),
                   .scratch = s.scratch,
                   .scratch_stride = s.scratch_stride});
  AddGateUp(s, "moe.shared_gate_up", s.everyone, &w.shared, xq, act);
  s.Linear("moe.shared_down", act, w.shared.w2, shared, {.piece = StepContext::PieceFor(inter)});
  s.b.Add("moe.combine", s.k.add,
          AddArgs{.n_rows = s.n_rows(),
                  .a = y,
                  .b = shared,
                  .y = out,
                  .cols = static_cast<int32_t>(hidden),
                  .round = s.num.bf16});
  s.b.memory().Restore(mark);
}

}  // namespace deepinfer
