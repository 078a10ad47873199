#include "verify/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/model_dir.h"
#include "config/model_config.h"
#include "config/numerics.h"
#include "engine/rank_load.h"

namespace deepinfer {

namespace {

// "models/tiny/" -> "tiny".
std::string BaseName(const std::string& dir) {
  const std::filesystem::path path = std::filesystem::absolute(dir).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// One sequence that fits every set, and steps of `chunk` rows or the longest prompt, and a
// verification.
EngineOptions Fit(EngineOptions engine, const std::vector<GoldenSet>& sets, int64_t chunk) {
  int64_t longest_prompt = 0, longest_text = 0, verification = 1;
  for (const GoldenSet& set : sets) {
    const int64_t prompt = static_cast<int64_t>(set.prompt.size());
    longest_prompt = std::max(longest_prompt, prompt);
    longest_text = std::max(longest_text, prompt + static_cast<int64_t>(set.greedy.size()));
    for (const GoldenSpeculation& step : set.speculative) {
      verification = std::max(verification, std::ssize(step.verified));
      longest_text = std::max(longest_text, step.position + std::ssize(step.verified));
    }
  }
  engine.max_model_len = longest_text;
  const int64_t rows = chunk > 0 ? std::min(chunk, longest_prompt) : longest_prompt;
  engine.max_num_batched_tokens = std::max(rows, verification);
  engine.max_num_seqs = 1;
  engine.num_kv_blocks = 0;
  return engine;
}

}  // namespace

Report Verify(const VerifyOptions& options) {
  if (options.chunk < 0) {
    throw Error(Code::kInvalid,
                fmt::format("--chunk: expected a number of rows, or 0 for whole prompts, found {}",
                            options.chunk));
  }
  EngineOptions engine = options.engine;
  engine.model = ResolveModelDir(engine.model, HubCacheDir());
  Numerics::Named(engine.numerics);
  const ModelConfig config = ModelConfig::Load(engine.model + "/config.json");
  const std::string name = options.name.empty() ? BaseName(engine.model) : options.name;
  std::vector<GoldenSet> sets;
  for (const std::string& prompt : FindGoldenPrompts(options.golden_dir, name, engine.numerics)) {
    sets.push_back(
        LoadGoldenSet(options.golden_dir, name, engine.numerics, prompt, config.vocab_size));
  }

  const ExecutorOptions load{.engine = Fit(engine, sets, options.chunk),
                             .all_logits = true,
                             .progress = {},
                             .world = options.world};
  if (options.world != nullptr) SendLoad(load);
  Executor executor(load);
  Report report(engine.numerics);
  for (const GoldenSet& set : sets) {
    report.CheckModel(set, ReplayModel(executor, set, options.chunk));
    report.CheckDrafts(set, executor.draft_tokens() > 0 ? ReplayDrafts(executor, set, options.chunk)
                                                        : std::vector<ReplayedDraft>());
    if (set.has_streams()) report.CheckLayers(set, ReplayLayers(executor, set, options.chunk));
  }
  report.Finish();
  return report;
}

}  // namespace deepinfer
