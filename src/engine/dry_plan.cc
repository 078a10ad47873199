#include "engine/dry_plan.h"

#include <algorithm>

#include "config/numerics.h"
#include "model/forward.h"

namespace deepinfer {

namespace {

// A plan that nobody can run: its arguments point nowhere.
template <class Build>
PlanBuilder DryPlan(const ModelConfig& config, const EngineOptions& options, const Ranks* ranks,
                    int64_t rows, const Build& build) {
  const Numerics numerics = Numerics::Named(options.numerics);
  ModelWeights weights{};  // plans only take addresses of weights
  weights.layers.resize(static_cast<size_t>(config.num_layers_and_stages()));
  const KvPool kv(MakeKvShape(config, numerics, rows), 1, 1, config.max_position_embeddings);
  const StepBlock inputs(1, 1, 1, 1);
  Fault fault{};
  std::vector<uint8_t> checked(
      static_cast<size_t>(config.num_layers_and_stages() * config.max_experts()));
  const ForwardContext context{
      .config = config,
      .numerics = numerics,
      .kernels = ReferenceKernels(),
      .weights = weights,
      .kv = kv,
      .inputs = inputs.inputs(),
      .fault = &fault,
      .checked_experts = checked.data(),
      .rope_plain = nullptr,
      .rope_yarn = nullptr,
      .draft_rows = config.num_nextn_predict_layers > 0,
      .ranks = ranks,
  };
  PlanBuilder builder(rows, static_cast<int>(std::max<int64_t>(options.threads, 1)), nullptr);
  build(context, builder);
  return builder;
}

template <class Build>
std::vector<Exchange> DryExchanges(const ModelConfig& config, const Layout& layout, int64_t rows,
                                   const Build& build) {
  if (layout.size() == 1) return {};
  const Ranks ranks{layout, 0, nullptr, nullptr, nullptr, nullptr};
  return DryPlan(config, {}, &ranks, rows, build).Take().exchanges;
}

}  // namespace

ArenaPlan PlanMemory(const ModelConfig& config, const EngineOptions& options, int64_t rows) {
  const auto build = [&](const ForwardContext& context, PlanBuilder& builder) {
    BuildForward(context, options.max_num_seqs, builder);
  };
  return DryPlan(config, options, nullptr, rows, build).memory();
}

std::vector<Exchange> PlanExchanges(const ModelConfig& config, const Layout& layout, int64_t rows) {
  return DryExchanges(config, layout, rows,
                      [&](const ForwardContext& context, PlanBuilder& builder) {
                        BuildForward(context, rows, builder);
                      });
}

std::vector<Exchange> PlanDraftExchanges(const ModelConfig& config, const Layout& layout,
                                         int64_t n_seqs) {
  return DryExchanges(config, layout, n_seqs * config.dspark_block_size,
                      [](const ForwardContext& context, PlanBuilder& builder) {
                        BuildDraft(context, {}, builder);
                      });
}

}  // namespace deepinfer
