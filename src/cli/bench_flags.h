// What the commands under `bench` that load a model share.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "engine/executor.h"

namespace CLI {
class App;
}

namespace deepinfer {

struct BenchFlags {
  std::shared_ptr<EngineOptions> engine;
  std::string synthetic, json_file;
  CLI::App* command = nullptr;
};

// --model or --synthetic, the engine's options and --json.
std::shared_ptr<BenchFlags> AddBenchFlags(CLI::App* command);

// The engine's options with --synthetic in them. Throws Error when there is a --model too, or
// neither.
EngineOptions BenchEngine(const BenchFlags& flags);

// "1,2,16": positive integers. Throws Error naming `option`.
std::vector<int64_t> ParseCounts(const std::string& option, const std::string& text);

// The list of `option` as far as the model's longest sequence has room for it and `more` tokens.
// Entries of the default list that are too long are left out; one that was asked for is an Error.
std::vector<int64_t> LengthsThatFit(const BenchFlags& flags, const EngineOptions& options,
                                    const std::string& option, const std::string& text,
                                    int64_t more);

// Writes the object to the file of --json, if there is one.
void WriteJson(const BenchFlags& flags, const nlohmann::ordered_json& object);

// `n` random ids of the vocabulary that stop nothing (no special ids below 3) and stand for no
// image.
std::vector<TokenId> RandomIds(int64_t n, const ModelConfig& config, uint64_t seed);

double Median(std::vector<double> values);

}  // namespace deepinfer
