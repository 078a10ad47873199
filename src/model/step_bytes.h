// Bytes that a step has to read, from the config alone: for models that are not there.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "config/shape_table.h"
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

  // The same when rows of neighbouring positions share the part `overlap` of their experts, and
  // others nothing (model/uniform_route.h).
  double WithOverlap(int64_t rows, int64_t context, double overlap) const;

  // A draft for `n_seqs` sequences: its stages, the head, the transitions token by token.
  double Draft(int64_t n_seqs) const;
  // What leaves the rows of newly computed tokens for the stages reads.
  double DraftRows() const { return static_cast<double>(draft_rows_); }

 private:
  void AddStageTensor(const TensorSpec& spec);
  double Step(int64_t rows, int64_t context, double distinct) const;

  const ModelConfig& c_;
  const KvShape& shape_;
  int64_t dense_ = 0, experts_ = 0;  // all experts of all layers
  int64_t head_ = 0, transition_ = 0;
  // Of all draft stages; draft_rows_: what leaves a window row a token there.
  int64_t stages_ = 0, stage_experts_ = 0, draft_rows_ = 0;
};

}  // namespace deepinfer
