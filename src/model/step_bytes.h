// Bytes that a step has to read, from the config alone: for models that are not there.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "kv/kv_pool.h"

namespace deepinfer {

// Weights and scales, each once; cache rows of one sequence that has `context` tokens before `rows`
// more; table rows of embedding and Engram. Vectors (norms, biases) are left out, as in ops/cost.h.
// Exact for one row. Of more rows the number of different experts is that expected of uniform
// routing, and selected rows and candidates count as if no two rows chose the same.
class StepBytes {
 public:
  // Goes through the shapes of all tensors once. Both arguments outlive it.
  StepBytes(const ModelConfig& config, const KvShape& shape);

  double operator()(int64_t rows, int64_t context) const;

 private:
  const ModelConfig& c_;
  const KvShape& shape_;
  int64_t dense_ = 0, experts_ = 0;  // all experts of all layers
};

}  // namespace deepinfer
