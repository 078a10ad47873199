// EngineOptions: the only options struct. Filled by the command line over the defaults and the
// environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/synthetic.h"

namespace deepinfer {

struct EngineOptions {
  // A directory, or a hub name `org/name` that is present in the local hub cache
  // (checkpoint/model_dir.h).
  std::string model;
  // Random weights of this shape instead of `model`, for measurements (bench).
  std::optional<SyntheticModel> synthetic = std::nullopt;
  // Longest sequence, prompt and answer together, in tokens. 0 = max_position_embeddings of the
  // model.
  int64_t max_model_len = 0;
  // Most rows (tokens of all sequences together) of one step.
  int64_t max_num_batched_tokens = 512;
  // Most sequences that are computed at the same time.
  int64_t max_num_seqs = 8;
  // How much longer 20 tokens of an answer may take while prompts are computed beside it, as a
  // ratio: chunks of prompts are sized for that. 0 = chunks fill the steps.
  double prefill_slowdown = 0;
  // Blocks of the compressed caches. 0 = see NumKvBlocks.
  int64_t num_kv_blocks = 0;
  // Memory for states that later sequences with the same beginning go on from, in MiB. 0 = none is
  // kept.
  int64_t prefix_cache_mib = 1024;
  // Threads per rank. 0 = one per physical core that the process may use.
  int64_t threads = 0;
  // Highest instruction set level used: auto, generic, avx2, avx512, amx.
  std::string isa = "auto";
  // Rounding points (docs/numerics.md): release, fp32, trn2.
  std::string numerics = "release";
  // Who chooses experts: model, or uniform (a hash of token, position and layer, for measurements
  // with random weights).
  std::string routing = "model";
  // Part of its experts that a token shares with the next, 0 to 1, when routing is uniform. -1:
  // left to the hash.
  double routing_overlap = -1;
  // What ranks share, and how many neighbours run one batch (0: all): LayoutOptions.
  std::string layout = "tp";
  int64_t batch_ranks = 0;
  // Of all ranks, of those that share the heads, and that share the experts. 0: whatever there is;
  // else loading fails when there are not so many.
  int64_t ranks = 0, tensor_parallel_size = 0, expert_parallel_size = 0;
  // Sums over ranks and where Engram tables are: see LayoutOptions.
  std::string reduce = "exact", engram = "host";
  // Seconds that a rank waits in a step for the others; while loading, 20 times as long.
  int64_t rank_timeout_s = 30;
  // Draft tokens: off, exact (an answer is the same with and without drafts) or rejection (its
  // distribution is). Off when the model has no draft stages.
  std::string speculative = "exact";
  // Most draft tokens verified in one step of a sequence. -1 = as many as the model drafts; more
  // than that is refused.
  int64_t num_speculative_tokens = -1;
  // How many of them: auto (as many as pay, none when drafts do not) or fixed. With auto and
  // rejection an answer may differ from run to run, as the choice follows measured times.
  std::string draft_depth = "auto";

  // Reads DEEPINFER_MODEL, DEEPINFER_ISA and DEEPINFER_THREADS over the values above. Throws Error
  // for a value that is no number, and for any other variable whose name begins with DEEPINFER_,
  // naming it and the known ones.
  void ApplyEnvironment();

  // Throws Error naming the first option that is out of range.
  void Validate() const;
};

// Memory that the default number of compressed cache blocks may take on one rank.
inline constexpr int64_t kDefaultKvBytes = int64_t{4} << 30;

// Number of cache blocks: options.num_kv_blocks, or when that is 0 enough for max_num_seqs
// sequences of `max_model_len` tokens (the resolved value, > 0), but no more than kDefaultKvBytes
// hold, and never less than one such sequence needs.
int64_t NumKvBlocks(const EngineOptions& options, int64_t max_model_len, int64_t block_tokens,
                    int64_t block_bytes);

// Did mpirun (Open MPI, or MPICH and its relatives) start this process?
bool StartedByMpi();

// Where downloaded models lie: HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub. Empty
// when no home is set.
std::string HubCacheDir();

}  // namespace deepinfer
