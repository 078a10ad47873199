#include "cli/bench_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/model_dir.h"
#include "cli/arguments.h"
#include "cli/flags.h"
#include "cli/output.h"

namespace deepinfer {

std::shared_ptr<BenchFlags> AddBenchFlags(CLI::App* command) {
  auto flags = std::make_shared<BenchFlags>();
  flags->engine = AddEngineFlags(command);
  flags->command = command;
  command
      ->add_option("--synthetic", flags->synthetic,
                   "Random weights of released widths instead of --model: "
                   "layers=4,experts=64,vocab=129280,engram=16384,stages=1,seed=1, all optional")
      ->expected(0, 1);
  command
      ->add_option("--routing", flags->engine->routing,
                   "Who chooses experts: model, or uniform (a hash of token, position and layer)")
      ->capture_default_str();
  command->add_option("--routing-overlap", flags->engine->routing_overlap,
                      "Part of its experts that a token shares with the next (uniform routing)");
  command->add_option("--json", flags->json_file, "Write the results to this file too, as JSON");
  return flags;
}

EngineOptions BenchEngine(const BenchFlags& flags) {
  EngineOptions options = *flags.engine;
  const bool synthetic = flags.command->count("--synthetic") > 0;
  if (synthetic && flags.command->count("--model") > 0)
    throw Error(Code::kInvalid, "--synthetic: expected no --model with it, found one");
  if (!synthetic && options.model.empty())
    throw Error(Code::kInvalid, "expected --model or --synthetic, found neither");
  if (synthetic) options.synthetic = SyntheticModel::Parse(flags.synthetic);
  return options;
}

std::vector<int64_t> ParseCounts(const std::string& option, const std::string& text) {
  std::vector<int64_t> counts;
  const char* next = text.data();
  const char* const end = next + text.size();
  for (;;) {
    int64_t count = 0;
    const auto [stop, error] = std::from_chars(next, end, count);
    if (error != std::errc() || count < 1 || (stop != end && *stop != ',')) {
      throw Error(
          Code::kInvalid,
          fmt::format("{}: expected positive integers such as 1,16, found \"{}\"", option, text));
    }
    counts.push_back(count);
    if (stop == end) return counts;
    next = stop + 1;
  }
}

std::vector<int64_t> LengthsThatFit(const BenchFlags& flags, const EngineOptions& options,
                                    const std::string& option, const std::string& text,
                                    int64_t more) {
  const ModelConfig config =
      options.synthetic
          ? SyntheticConfig(*options.synthetic)
          : ModelConfig::Load(ResolveModelDir(options.model, HubCacheDir()) + "/config.json");
  const int64_t most =
      options.max_model_len > 0 ? options.max_model_len : config.max_position_embeddings;
  std::vector<int64_t> lengths;
  for (const int64_t length : ParseCounts(option, text)) {
    if (length + more <= most) {
      lengths.push_back(length);
    } else if (flags.command->count(option) > 0) {
      throw Error(Code::kInvalid,
                  fmt::format("{}: expected at most {} tokens, so that {} more fit the longest "
                              "sequence of {}, found {}",
                              option, most - more, more, most, length));
    }
  }
  if (lengths.empty()) {
    throw Error(Code::kInvalid, fmt::format("{}: expected lengths that fit the longest sequence of "
                                            "{}, found {}",
                                            option, most, text));
  }
  return lengths;
}

void WriteJson(const BenchFlags& flags, const nlohmann::ordered_json& object) {
  if (flags.json_file.empty()) return;
  WriteFile("--json", flags.json_file, object.dump(2) + "\n");
}

std::vector<TokenId> RandomIds(int64_t n, const ModelConfig& config, uint64_t seed) {
  const auto range = static_cast<uint64_t>(config.vocab_size - 3);
  std::vector<TokenId> ids;
  while (std::ssize(ids) < n) {
    const auto id = static_cast<TokenId>(3 + NextRandom(&seed) % range);
    if (id != config.image_token_id) ids.push_back(id);
  }
  return ids;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace deepinfer
