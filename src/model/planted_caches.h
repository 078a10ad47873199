// Caches as if many tokens had been computed, for measurements at long context.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "config/numerics.h"
#include "kv/kv_pool.h"

namespace deepinfer {

// Fills every cache row of the pool with seeded random values around 1 in the row's format.
void FillCaches(const KvPool& kv, const ModelConfig& config, const Numerics& numerics,
                uint64_t seed);

}  // namespace deepinfer
