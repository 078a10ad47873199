#include "config/generation_config.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/read_file.h"

namespace deepinfer {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBytes = 1 << 20;

// The value of `key`, null when it is absent.
json Field(const json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? json() : *it;
}

Error WrongType(const std::string& name, const char* key, const char* expected, const json& found) {
  return Error(Code::kInvalid,
               name + ": " + key + ": expected " + expected + ", found " + found.dump());
}

}  // namespace

GenerationConfig GenerationConfig::Load(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  return Parse(ReadFile(path, kMaxBytes), path);
}

GenerationConfig GenerationConfig::Parse(std::string_view text, const std::string& name) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw Error(Code::kCorrupt, name + ": expected a JSON object");
  GenerationConfig config;
  const auto number = [&](const char* key, std::optional<float>* out) {
    const json value = Field(object, key);
    if (value.is_null()) return;
    if (!value.is_number()) throw WrongType(name, key, "a number", value);
    *out = value.get<float>();
  };
  number("temperature", &config.temperature);
  number("top_p", &config.top_p);
  number("min_p", &config.min_p);
  number("repetition_penalty", &config.repetition_penalty);
  if (const json value = Field(object, "top_k"); !value.is_null()) {
    const bool fits = value.is_number_integer() && std::abs(value.get<double>()) <= INT32_MAX;
    if (!fits) throw WrongType(name, "top_k", "an integer", value);
    config.top_k = value.get<int>();
  }
  if (const json value = Field(object, "do_sample"); !value.is_null()) {
    if (!value.is_boolean()) throw WrongType(name, "do_sample", "true or false", value);
    if (!value.get<bool>()) config.temperature = 0.f;
  }
  return config;
}

}  // namespace deepinfer
