#include "cli/flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "checkpoint/model_dir.h"
#include "checkpoint/safetensors.h"
#include "cli/arguments.h"
#include "cli/launch.h"

namespace deepinfer {
namespace {

std::shared_ptr<EngineOptions> FromEnvironment() {
  auto options = std::make_shared<EngineOptions>();
  options->ApplyEnvironment();
  return options;
}

void AddModel(CLI::App* command, EngineOptions& o) {
  command->add_option("--model", o.model,
                      "Model directory, or org/name in the local hub cache (DEEPINFER_MODEL)");
}

}  // namespace

std::shared_ptr<EngineOptions> AddModelFlag(CLI::App* command) {
  auto options = FromEnvironment();
  AddModel(command, *options);
  return options;
}

void AddRanksFlag(CLI::App* command, EngineOptions* options) {
  const auto read = [options](const std::string& text) {
    const int ranks = ParseRanks(text);
    if (!StartedByMpi() && ranks > 1) throw RanksWanted{ranks};
    if (text != "auto") options->ranks = ranks;
  };
  command->add_option_function<std::string>(
      "--ranks", read,
      "Starts so many ranks on this machine, as mpirun -n would; auto: one for each memory node");
}

std::shared_ptr<EngineOptions> AddEngineFlags(CLI::App* command) {
  auto options = FromEnvironment();
  EngineOptions& o = *options;
  AddModel(command, o);
  command
      ->add_option("--max-model-len", o.max_model_len,
                   "Longest sequence in tokens; 0: what the model allows")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--max-num-batched-tokens", o.max_num_batched_tokens, "Most tokens of one step")
      ->check(CheckInteger)
      ->capture_default_str();
  command->add_option("--max-num-seqs", o.max_num_seqs, "Most sequences computed at once")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--num-kv-blocks", o.num_kv_blocks,
                   "Cache blocks; 0: enough for the above, up to 4 GiB")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--prefix-cache-mib", o.prefix_cache_mib,
                   "Memory for beginnings that prompts share; 0: every prompt is computed anew")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--threads", o.threads, "Threads; 0: one per physical core (DEEPINFER_THREADS)")
      ->check(CheckInteger)
      ->capture_default_str();
  command->add_option("--isa", o.isa, "auto, generic, avx2, avx512 or amx (DEEPINFER_ISA)")
      ->capture_default_str();
  command->add_option("--numerics", o.numerics, "Rounding points: release, fp32 or trn2")
      ->capture_default_str();
  AddRanksFlag(command, &o);
  command
      ->add_option("--layout", o.layout,
                   "What ranks share: ep (experts), tp (heads too), tp8r (heads within 8 ranks) or "
                   "dp (a batch a rank)")
      ->capture_default_str();
  command->add_option("--cp", o.batch_ranks, "Ranks that run one batch together; 0: all")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--tensor-parallel-size", o.tensor_parallel_size,
                   "Ranks that share the heads; 0: as many as --layout makes of them")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--ep", o.expert_parallel_size,
                   "Ranks that share the experts: all; 0: as many as there are")
      ->check(CheckInteger)
      ->capture_default_str();
  command->add_flag("--enable-expert-parallel")
      ->description("Experts by id: so it is in every layout");
  command
      ->add_option(
          "--reduce", o.reduce,
          "Sums over ranks: exact (the bits of one rank) or fast (partial sums, added in rank "
          "order)")
      ->capture_default_str();
  command
      ->add_option(
          "--engram", o.engram,
          "Engram tables: host (one for all ranks), rows-fp8 or rows-bf16 (cut over ranks)")
      ->capture_default_str();
  command
      ->add_option("--rank-timeout", o.rank_timeout_s,
                   "Seconds that a rank waits in a step for the others; 20 times as long to load")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--speculative", o.speculative,
                   "Draft tokens: off, exact (answers are the same) or rejection (distributed the "
                   "same)")
      ->capture_default_str();
  command
      ->add_option("--num-speculative-tokens", o.num_speculative_tokens,
                   "Most draft tokens of a step; -1: as many as the model drafts")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--draft-depth", o.draft_depth,
                   "auto (as many draft tokens as pay, none when they do not) or fixed")
      ->capture_default_str();
  return options;
}

void WarnUnused(std::span<const std::string> tensors, const std::string& dir) {
  if (tensors.empty()) return;
  const std::string warning =
      fmt::format("deepinfer: warning: {} tensors of {} are not used, the first is {}\n",
                  tensors.size(), dir, Printable(tensors.front()));
  std::fputs(warning.c_str(), stderr);  // which may take nothing: no reason to end
}

OpenedModel OpenModel(const std::string& model) {
  std::string dir = ResolveModelDir(model, HubCacheDir());
  ModelConfig config = ModelConfig::Load(dir + "/config.json");
  Checkpoint checkpoint = Checkpoint::Open(dir, config);
  WarnUnused(checkpoint.unused(), dir);
  return {std::move(dir), std::move(config), std::move(checkpoint)};
}

}  // namespace deepinfer
