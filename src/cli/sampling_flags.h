// Options of the commands that generate text: how tokens are drawn and when an answer ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"

namespace CLI {
class App;
}

namespace deepinfer {

// Empty fields are left to the checkpoint's generation_config.json, then to SamplingParams.
struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p;
  std::optional<int> top_k;
  std::optional<uint64_t> seed;
  int64_t max_tokens = 0;
  std::vector<std::string> stop;
};

// Adds them with `flags` as storage, which the callback of the command keeps alive.
// flags->max_tokens is the default of --max-tokens.
void AddSamplingFlags(CLI::App* command, SamplingFlags* flags);

// A request without prompt, with the defaults of the model in `model_dir`.
Request MakeRequest(const SamplingFlags& flags, const std::string& model_dir);

}  // namespace deepinfer
