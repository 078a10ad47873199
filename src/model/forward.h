// The forward pass as a list of phases (spec 01). One function per part of the model, in the order
// of the paper:
//   forward.cc     embedding, layers, final norm, head
//   block.cc       hyper-connections around the two sublayers of a layer
//   attention.cc   projections, window rows, sparse attention, output projection
//   compressor.cc  compressed rows and index keys
//   indexer.cc     selection of compressed rows
//   moe.cc         router, routed and shared experts
//   engram.cc      hashed n-gram rows
#pragma once

#include <cstdint>
#include <string>

#include "config/model_config.h"
#include "config/numerics.h"
#include "kv/kv_pool.h"
#include "model/plan.h"
#include "model/weights.h"
#include "ops/kernel_table.h"

namespace deepinfer {

// What a plan is built from; all of it outlives the plan.
struct ForwardContext {
  const ModelConfig& config;
  const Numerics& numerics;
  const KernelTable& kernels;
  const ModelWeights& weights;
  const KvPool& kv;
  const StepInputs* inputs;
  Fault* fault;
  uint8_t* checked_experts;  // [layers, n_routed_experts]; see CheckExpertsArgs
  const float* rope_plain;   // [qk_rope_head_dim / 2] frequencies of layers without compression
  const float* rope_yarn;    // the same of layers with compression
};

// Where the step's results lie in the arena.
struct ForwardOutput {
  const float* logits;  // [n_samples, vocab_size], in the order of StepInputs::sample_rows
};

// Lists the phases of a step of up to b.rows() rows with logits for up to max_samples of them.
ForwardOutput BuildForward(const ForwardContext& m, int64_t max_samples, PlanBuilder& b);

// Row formats and sizes of the caches under these numerics.
KvShape MakeKvShape(const ModelConfig& config, const Numerics& numerics, int64_t max_step_rows);

// Frequencies of the rotary embedding (spec 01 section 2.2): compressed layers use their own base
// and YaRN.
std::vector<float> RopeFrequencies(const ModelConfig& config, bool compressed);

}  // namespace deepinfer
