// Plans of models that are not there: what they book and what their ranks exchange, from the config
// alone. The code that lists the phases is that of the plans that run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/arena.h"
#include "config/layout.h"
#include "config/model_config.h"
#include "config/options.h"
#include "model/plan.h"

namespace deepinfer {

// Memory that a plan for steps of `rows` rows books.
ArenaPlan PlanMemory(const ModelConfig& config, const EngineOptions& options, int64_t rows);

// What ranks exchange in a step of `rows` rows, all with logits, in order.
std::vector<Exchange> PlanExchanges(const ModelConfig& config, const Layout& layout, int64_t rows);
// The same of a draft for n_seqs sequences.
std::vector<Exchange> PlanDraftExchanges(const ModelConfig& config, const Layout& layout,
                                         int64_t n_seqs);

}  // namespace deepinfer
