// The forward pass as a list of phases (spec 01). One function per part of the model, in the order
// of the paper:
//   forward.cc     embedding, layers, final norm, head
//   block.cc       hyper-connections around the two sublayers of a layer
//   attention.cc   projections, window rows, sparse attention, output projection
//   compressor.cc  compressed rows and index keys
//   indexer.cc     selection of compressed rows
//   moe.cc         router, routed and shared experts
//   engram.cc      hashed n-gram rows
//   dspark.cc      draft stages
#pragma once

#include <cstdint>
#include <string>

#include "config/model_config.h"
#include "config/numerics.h"
#include "kv/kv_pool.h"
#include "model/plan.h"
#include "model/ranks.h"
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
  uint8_t* checked_experts;      // [layers and stages, max_experts()]; see CheckExpertsArgs
  const float* rope_plain;       // [qk_rope_head_dim / 2] frequencies of layers without compression
  const float* rope_yarn;        // the same of layers with compression
  bool draft_rows;               // every step leaves window rows for the draft stages
  bool uniform_routing = false;  // see uniform_route.h
  float routing_overlap = -1;
  const Ranks* ranks = nullptr;  // null: the model is on one rank
};

// Where the step's results lie in the arena.
struct ForwardOutput {
  const float* logits;  // [n_samples, vocab_size], in the order of StepInputs::sample_rows
  const TopLogit* top;  // [n_samples, threads] the largest of them
};

// What a draft starts from, besides StepInputs with block rows per sequence: the anchor and noise
// tokens at the positions that follow the sequence, window_ends at the last of them.
struct DraftInputs {
  DraftSampling sampling;  // [n_seqs]
  int32_t* previous;       // [n_seqs] the anchors; overwritten
  int32_t* tokens;         // [n_seqs, block] the drafts
};

// Where a draft's results lie in the arena.
struct DraftOutput {
  TokenId* tokens;      // [n_seqs * block]
  const float* logits;  // [n_seqs * block, vocab_size], transitions included
  float* confidence;    // [n_seqs * block] before the sigmoid
};

// Lists the phases of a step of up to b.rows() rows with logits for up to max_samples of them.
ForwardOutput BuildForward(const ForwardContext& m, int64_t max_samples, PlanBuilder& b);

// Lists the phases of a draft for up to b.rows() / dspark_block_size sequences (spec 05 section 4).
DraftOutput BuildDraft(const ForwardContext& m, const DraftInputs& d, PlanBuilder& b);

// Row formats of the caches under these numerics.
inline RowFormat WindowFormat(const Numerics& n) {
  return n.window_kv_fp8 ? RowFormat::kFp8Block32 : RowFormat::kF32;
}
inline RowFormat CompressedFormat(const Numerics& n) {
  return n.compressed_kv_fp4 ? RowFormat::kFp4Block16 : RowFormat::kF32;
}
inline RowFormat IndexFormat(const Numerics& n) {
  return n.index_fp4 ? RowFormat::kFp4Block32 : RowFormat::kF32;
}

// The sizes that follow.
KvShape MakeKvShape(const ModelConfig& config, const Numerics& numerics, int64_t max_step_rows);

// Frequencies of the rotary embedding (spec 01 section 2.2): compressed layers use their own base
// and YaRN.
std::vector<float> RopeFrequencies(const ModelConfig& config, bool compressed);

}  // namespace deepinfer
