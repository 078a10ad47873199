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

// Are whole sums of the shared expert cut over the ranks of a batch?
bool CutsShared(const StepContext& s) {
  return s.m.ranks != nullptr && s.m.ranks->layout.batch_size() > 1 && !AddsPartialSums(s);
}

// Lines of a row in the exchange of the experts' outputs: one for each of its experts, and one for
// the shared expert if that is cut.
int64_t RowSlots(const StepContext& s, int layer) {
  return s.c.experts_per_tok(layer) + (CutsShared(s) ? 1 : 0);
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
                       .row_slots = static_cast<int32_t>(RowSlots(s, layer)),
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

// act [rows, inter] of the shared expert, from the ranks of the batch. own: the columns of this
// rank.
const float* GatherShared(const StepContext& s, const float* own) {
  const Ranks& ranks = *s.m.ranks;
  const int64_t inter = s.c.moe_intermediate_size;
  float* act = s.b.Temp<float>("moe.shared_all", s.rows() * inter);
  s.b.Add("moe.own_columns", CopyColumns,
          CopyColumnsArgs{.n_rows = s.n_rows(),
                          .at = s.in->all_rows,
                          .x = own,
                          .y = act,
                          .y_cols = inter,
                          .y_stride = inter,
                          .to = ranks.shared_inner()},
          Start::kBeside);
  s.Gather("moe.gather_shared", &Ranks::batch, ranks.layout.shared_inner(), act, inter,
           s.all_rows());
  return act;
}

// y [rows, outputs of this rank] = w2 . act of the shared expert.
void AddSharedDown(const StepContext& s, const WeightView& w2, const float* act, float* y) {
  s.Linear("moe.shared_down", act, w2, y, {.exact = AddsPartialSums(s), .start = Start::kBeside});
}

// The routed experts' activations and, beside them, a look at their scales.
void AddExperts(const StepContext& s, int layer, const float* x, float* act) {
  const std::vector<ExpertWeights>& experts =
      s.m.weights.layers[static_cast<size_t>(layer)].ffn.experts;
  AddGateUp(s, "moe.experts_gate_up", s.routed, experts.data(), s.c.moe_intermediate_size, x, act,
            Start::kAfterAll);
  s.b.Add("moe.check_experts", s.k.check_experts,
          CheckExpertsArgs{.pairs = s.routed,
                           .experts = experts.data(),
                           .checked = s.m.checked_experts + layer * s.c.max_experts(),
                           .layer = layer,
                           .fault = s.m.fault},
          Start::kBeside);
}

// y: sums of the experts of `pairs`, as their rows say.
void AddDown(const StepContext& s, int layer, const ExpertPairs& pairs, const int32_t* n_rows,
             const float* act, float* y) {
  s.b.Add("moe.experts_down", s.k.down,
          DownArgs{.n_rows = n_rows,
                   .pairs = pairs,
                   .experts = s.m.weights.layers[static_cast<size_t>(layer)].ffn.experts.data(),
                   .act = act,
                   .y = y,
                   .hidden = static_cast<int32_t>(s.c.hidden_size),
                   .inter = static_cast<int32_t>(s.c.moe_intermediate_size),
                   .round = s.num.bf16,
                   .bf16_inputs = s.num.bf16,
                   .fp8_inputs = QuantisesExperts(s.num),
                   .scratch = s.scratch,
                   .scratch_stride = s.scratch_stride});
}

// out = routed + shared, both [rows, hidden]; not rounded where that is a part of a sum.
void AddCombine(const StepContext& s, const float* routed, const float* shared, float* out) {
  s.b.Add("moe.combine", s.k.add,
          AddArgs{.n_rows = s.n_rows(),
                  .a = routed,
                  .b = shared,
                  .y = out,
                  .cols = static_cast<int32_t>(s.c.hidden_size),
                  .round = s.num.bf16 && !AddsPartialSums(s)},
          Start::kOnOwn);
}

// Every expert's output is exchanged, and all ranks add them in the order in which one would.
// shared [rows, own columns] travels with them if it is cut.
void AddMergedDown(const StepContext& s, int layer, const float* act, const float* shared,
                   float* out) {
  const Ranks& ranks = *s.m.ranks;
  const bool cut = CutsShared(s);
  const int64_t hidden = s.c.hidden_size, row_slots = RowSlots(s, layer);
  float* slots = s.b.Temp<float>("moe.slots", s.rows() * row_slots * hidden);
  float* sums = cut ? out : s.b.Temp<float>("moe.routed", s.rows() * hidden);
  AddDown(s, layer, s.slots, s.n_slots, act, slots);
  if (cut) {
    s.b.Add("moe.own_columns", CopyColumns,
            CopyColumnsArgs{.n_rows = s.n_rows(),
                            .at = s.in->world_rows,
                            .x = shared,
                            .y = slots + (row_slots - 1) * hidden,
                            .y_cols = hidden,
                            .y_stride = row_slots * hidden,
                            .to = ranks.shared_out()},
            Start::kOnOwn);
  }
  s.Merge("moe.merge", &Ranks::world, slots, 4 * hidden, {s.n_slots, s.rows() * row_slots});
  s.b.Add("moe.sum_slots", SumSlots,
          SumSlotsArgs{.n_rows = s.n_rows(),
                       .at = s.in->world_rows,
                       .slots = slots,
                       .y = sums,
                       .row_slots = static_cast<int32_t>(row_slots),
                       .hidden = hidden,
                       .round = cut && s.num.bf16});
  if (!cut) AddCombine(s, sums, shared, out);
}

// Each rank adds up what its experts and its columns of the shared one give, and all add their
// sums.
void AddSummedDown(const StepContext& s, int layer, const float* act, const float* shared,
                   float* out) {
  const int64_t hidden = s.c.hidden_size;
  const bool has_shared = s.m.ranks->shared_inner().size() > 0;
  float* sums = has_shared ? s.b.Temp<float>("moe.routed", s.rows() * hidden) : out;
  AddDown(s, layer, s.routed, s.n_world_rows(), act, sums);
  if (has_shared) AddCombine(s, sums, shared, out);
  s.Sum("moe.sum", &Ranks::world, s.m.ranks->layout.size(), out, hidden);
}

}  // namespace

// The shared expert runs beside the router, on which the routed experts wait.
void AddMoe(const StepContext& s, int layer, const float* x, const float* xq, float* out) {
  const FfnWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].ffn;
  const int64_t hidden = s.c.hidden_size, inter = s.c.moe_intermediate_size, rows = s.rows();
  const int64_t n_experts = s.c.n_experts(layer), topk = s.c.experts_per_tok(layer);
  const Ranks* ranks = s.m.ranks;
  const int64_t inner = ranks != nullptr ? ranks->shared_inner().size() : inter;
  const auto mark = s.b.memory().Save();
  const RouterBuffers router{s.b.Temp<float>("moe.router_logits", rows * n_experts),
                             s.b.Temp<int32_t>("moe.expert_ids", rows * topk),
                             s.b.Temp<float>("moe.expert_weights", rows * topk)};
  float* shared = s.b.Temp<float>("moe.shared", rows * hidden);
  float* act = s.b.Temp<float>("moe.act", rows * topk * inter);
  float* shared_act = s.b.Temp<float>("moe.shared_act", rows * inter);

  s.Linear("moe.gate", x, w.gate, router.logits, {.exact = true, .start = Start::kBeside});
  if (inner > 0) {
    AddGateUp(s, "moe.shared_gate_up", s.everyone, &w.shared, inner, xq, shared_act,
              Start::kBeside);
  }

  AddRoute(s, layer, w, router);
  RoutedRows routed{router.ids, router.weights, xq};
  const bool one = rows == 1 && !s.batches();
  if (one) AddGroupPairs(s, layer, routed);
  const bool cut = CutsShared(s);
  const float* gathered = cut ? GatherShared(s, shared_act) : nullptr;
  if (!cut && inner > 0) AddSharedDown(s, w.shared.w2, shared_act, shared);
  if (s.batches()) routed = AllBatches(s, topk, routed);
  if (!one) AddGroupPairs(s, layer, routed);

  AddExperts(s, layer, routed.x, act);
  if (cut && ranks->shared_out().size() > 0) AddSharedDown(s, w.shared.w2, gathered, shared);
  if (ranks == nullptr) {
    float* sums = s.b.Temp<float>("moe.routed", rows * hidden);
    AddDown(s, layer, s.routed, s.n_rows(), act, sums);
    AddCombine(s, sums, shared, out);
  } else if (AddsPartialSums(s)) {
    AddSummedDown(s, layer, act, shared, out);
  } else {
    AddMergedDown(s, layer, act, shared, out);
  }
  s.b.memory().Restore(mark);
}

}  // namespace deepinfer
