// GenerationConfig: how its makers want a model to be sampled, from generation_config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

// A field is empty when the file does not say. Other keys are ignored.
struct GenerationConfig {
  std::optional<float> temperature;  // 0 when do_sample is false
  std::optional<float> top_p, min_p, repetition_penalty;
  std::optional<int> top_k;

  // Reads `path`; a file that does not exist says nothing. Throws Error naming the field that is
  // not of its type.
  static GenerationConfig Load(const std::string& path);
  // The same from text; `name` stands for the file in messages.
  static GenerationConfig Parse(std::string_view text, const std::string& name);
};

}  // namespace deepinfer
