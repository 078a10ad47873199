// Router, routed experts and the shared expert (spec 01 section 7).
#include "model/parts.h"
#include "model/uniform_route.h"

namespace deepinfer {

namespace {

// Where the router leaves its choice.
struct RouterBuffers {
  float* logits;   // [rows, experts]
  int32_t* ids;    // [rows, topk]
  float* weights;  // [rows, topk]
};

// What the routed experts read: the rows of this batch, or those of all batches.
struct RoutedRows {
  const int32_t* ids;    // [rows, topk]
  const float* weights;  // [rows, topk]
  const float* x;        // [rows, hidden]
};

void AddRoute(const StepContext& s, int layer, const FfnWeights& w, const RouterBuffers& r) {
  const int64_t n = s.c.n_experts(layer), topk = s.c.experts_per_tok(layer);
  if (s.m.uniform_routing) {
    s.b.Add("moe.route", UniformRoute,
            UniformRouteArgs{.n_rows = s.n_rows(),
                             .tokens = s.in->ids,
                             .positions = s.in->positions,
                             .ids = r.ids,
                             .weights = r.weights,
                             .n_experts = static_cast<int32_t>(n),
                             .topk = static_cast<int32_t>(topk),
                             .layer = layer,
                             .scaling = s.c.routed_scaling_factor,
                             .overlap = s.m.routing_overlap});
  } else {
    s.b.Add("moe.route", s.k.route,
            RouteArgs{.n_rows = s.n_rows(),
                      .logits = r.logits,
                      .bias = w.bias,
                      .ids = r.ids,
                      .weights = r.weights,
                      .n_experts = static_cast<int32_t>(n),
                      .topk = static_cast<int32_t>(topk),
                      .normalize = topk > 1,
                      .scaling = s.c.routed_scaling_factor});
  }
  s.b.AddProbe(LayerName(layer, "router_ids"), r.ids, s.n_rows(), topk);
  s.b.AddProbe(LayerName(layer, "router_weights"), r.weights, s.n_rows(), topk);
}

// The rows of all batches go through the experts of every rank.
RoutedRows AllBatches(const StepContext& s, int64_t topk, const RoutedRows& own) {
  const auto shared =
      s.ShareRows("moe.share", {s.n_rows(), s.n_world_rows(), s.in->world_rows, s.rows()},
                  {{own.ids, topk}, {own.weights, topk}, {own.x, s.c.hidden_size}});
  return {reinterpret_cast<const int32_t*>(shared[0]), shared[1], shared[2]};
}

// One row was routed by the thread that groups the pairs.
void AddGroupPairs(const StepContext& s, int layer, const RoutedRows& r) {
  s.b.Add("moe.group_pairs", s.k.group_pairs,
          GroupPairsArgs{.n_rows = s.n_world_rows(),
                         .ids = r.ids,
                         .weights = r.weights,
                         .n_experts = static_cast<int32_t>(s.c.n_experts(layer)),
                         .topk = static_cast<int32_t>(s.c.experts_per_tok(layer)),
                         .pairs = s.routed},
          s.rows() == 1 && !s.batches() ? Start::kOnOwn : Start::kAfterAll);
  if (s.m.ranks == nullptr) return;
  s.b.Add("moe.own_pairs", OwnPairs,
          OwnPairsArgs{.n_rows = s.n_world_rows(),
                       .ids = r.ids,
                       .topk = static_cast<int32_t>(s.c.experts_per_tok(layer)),
                       .own = s.m.ranks->experts(layer),
                       .pairs = s.routed,
                       .slots = s.slots.rows,
                       .n_slots = s.n_slots},
          Start::kOnOwn);
}

// Do inputs and activations of the experts come from the Q8 quantiser?
bool QuantisesExperts(const Numerics& num) { return num.fp8_activations && num.fp8_expert_inputs; }

// act [pairs, inter] of the experts in `pairs`.
void AddGateUp(const StepContext& s, const char* name, const ExpertPairs& pairs,
               const ExpertWeights* experts, int64_t inter, const float* x, float* act,
               Start start) {
  const bool quantise = QuantisesExperts(s.num);
  s.b.Add(name, s.k.gate_up,
          GateUpArgs{.pairs = pairs,
                     .experts = experts,
                     .x = x,
                     .act = act,
                     .hidden = static_cast<int32_t>(s.c.hidden_size),
                     .inter = static_cast<int32_t>(inter),
                     .limit = s.c.swiglu_limit,
                     .fp8_max = quantise ? s.num.fp8_max : 0.0f,
                     .decode = s.num.halved_fp8_weights ? WeightDecode::kHalvedFp8
                                                        : WeightDecode::kAsStored,
                     .round = s.num.bf16,
                     .bf16_inputs = s.num.bf16,
                     .fp8_inputs = quantise,
                     .scratch = s.scratch,
                     .scratch_stride = s.scratch_stride},
          start);
}

// y [rows, hidden] = sum of the routed experts; of those of this rank, where it adds partial sums.
// Else every expert's output is exchanged, and all ranks add them in the order in which one would.
void AddExpertsDown(const StepContext& s, int layer, const float* act, float* y) {
  const std::vector<ExpertWeights>& experts =
      s.m.weights.layers[static_cast<size_t>(layer)].ffn.experts;
  const int64_t hidden = s.c.hidden_size, topk = s.c.experts_per_tok(layer);
  const bool ranks = s.m.ranks != nullptr && !AddsPartialSums(s);
  float* slots = ranks ? s.b.Temp<float>("moe.slots", s.rows() * topk * hidden) : y;
  s.b.Add("moe.experts_down", s.k.down,
          DownArgs{.n_rows = ranks ? s.n_slots : s.n_world_rows(),
                   .pairs = ranks ? s.slots : s.routed,
                   .experts = experts.data(),
                   .act = act,
                   .y = slots,
                   .hidden = static_cast<int32_t>(hidden),
                   .inter = static_cast<int32_t>(s.c.moe_intermediate_size),
                   .round = s.num.bf16,
                   .bf16_inputs = s.num.bf16,
                   .fp8_inputs = QuantisesExperts(s.num),
                   .scratch = s.scratch,
                   .scratch_stride = s.scratch_stride});
  if (!ranks) return;
  s.Merge("moe.merge", &Ranks::world, slots, 4 * hidden, {s.n_slots, s.rows() * topk});
  s.b.Add("moe.sum_slots", SumSlots,
          SumSlotsArgs{.n_rows = s.n_rows(),
                       .at = s.in->world_rows,
                       .slots = slots,
                       .y = y,
                       .topk = static_cast<int32_t>(topk),
                       .hidden = hidden});
}

}  // namespace

// The shared expert runs beside the router, on which the routed experts wait.
void AddMoe(const StepContext& s, int layer, const float* x, const float* xq, float* out) {
  const FfnWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].ffn;
  const int64_t hidden = s.c.hidden_size, inter = s.c.moe_intermediate_size, rows = s.rows();
  const int64_t n_experts = s.c.n_experts(layer), topk = s.c.experts_per_tok(layer);
  const auto mark = s.b.memory().Save();
  const RouterBuffers router{s.b.Temp<float>("moe.router_logits", rows * n_experts),
                             s.b.Temp<int32_t>("moe.expert_ids", rows * topk),
                             s.b.Temp<float>("moe.expert_weights", rows * topk)};
  float* y = s.b.Temp<float>("moe.routed", rows * hidden);
  float* shared = s.b.Temp<float>("moe.shared", rows * hidden);
  float* act = s.b.Temp<float>("moe.act", rows * topk * inter);
  float* shared_act = s.b.Temp<float>("moe.shared_act", rows * inter);
  const bool sums = AddsPartialSums(s);
  const int64_t own = sums ? s.m.ranks->layout.SharedColumns(s.m.ranks->rank).size() : inter;

  s.Linear("moe.gate", x, w.gate, router.logits, {.exact = true, .start = Start::kBeside});
  if (own > 0)
    AddGateUp(s, "moe.shared_gate_up", s.everyone, &w.shared, own, xq, shared_act, Start::kBeside);

  AddRoute(s, layer, w, router);
  RoutedRows routed{router.ids, router.weights, xq};
  const bool one = rows == 1 && !s.batches();
  if (one) AddGroupPairs(s, layer, routed);
  if (own > 0)
    s.Linear("moe.shared_down", shared_act, w.shared.w2, shared,
             {.piece = StepContext::PieceFor(inter), .exact = sums, .start = Start::kBeside});
  if (s.batches()) routed = AllBatches(s, topk, routed);
  if (!one) AddGroupPairs(s, layer, routed);

  AddGateUp(s, "moe.experts_gate_up", s.routed, w.experts.data(), inter, routed.x, act,
            Start::kAfterAll);
  s.b.Add("moe.check_experts", s.k.check_experts,
          CheckExpertsArgs{.pairs = s.routed,
                           .experts = w.experts.data(),
                           .checked = s.m.checked_experts + layer * s.c.max_experts(),
                           .layer = layer,
                           .fault = s.m.fault},
          Start::kBeside);
  AddExpertsDown(s, layer, act, own > 0 ? y : out);
  if (own > 0)
    s.b.Add("moe.combine", s.k.add,
            AddArgs{.n_rows = s.n_rows(),
                    .a = y,
                    .b = shared,
                    .y = out,
                    .cols = static_cast<int32_t>(hidden),
                    .round = s.num.bf16 && !sums},
            Start::kOnOwn);
  if (sums) s.Sum("moe.sum", &Ranks::world, s.m.ranks->layout.size(), out, hidden);
  s.b.memory().Restore(mark);
}

}  // namespace deepinfer
