#include "cli/sampling_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "cli/arguments.h"
#include "config/generation_config.h"

namespace deepinfer {
namespace {

// CLI11 would wrap a negative number and cut one that is too large.
std::string CheckSeed(const std::string& text) {
  uint64_t seed;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return "expected an integer from 0 to 18446744073709551615, found " + text;
}

}  // namespace

void AddSamplingFlags(CLI::App* command, SamplingFlags* f) {
  command->add_option("--max-tokens", f->max_tokens, "Most tokens of an answer; 0: all that fit")
      ->check(CheckInteger)
      ->capture_default_str();
  command->add_option("--temperature", f->temperature, "0 (greedy) to 2")->check(CheckReal);
  command->add_option("--top-p", f->top_p, "Keep the most probable tokens that sum to this")
      ->check(CheckReal);
  command->add_option("--top-k", f->top_k, "Keep the most probable tokens; 0: all")
      ->check(CheckInteger);
  command->add_option("--min-p", f->min_p, "Keep tokens this probable, as a share of the best")
      ->check(CheckReal);
  command->add_option("--seed", f->seed, "Makes the answer repeatable; without it, a random one")
      ->check(CheckSeed);
  command->add_option("--stop", f->stop, "Text that ends an answer (repeatable)")
      ->allow_extra_args(false);
  command->footer(
      "Where --temperature, --top-p, --top-k or --min-p is not given, the model's "
      "generation_config.json decides (do_sample false: temperature 0).");
}

Request MakeRequest(const SamplingFlags& flags, const std::string& model_dir) {
  Request request;
  SamplingParams& s = request.sampling;
  s = DefaultSampling(GenerationConfig::Load(model_dir + "/generation_config.json"));
  s.temperature = flags.temperature.value_or(s.temperature);
  s.top_p = flags.top_p.value_or(s.top_p);
  s.top_k = flags.top_k.value_or(s.top_k);
  s.min_p = flags.min_p.value_or(s.min_p);
  request.seed = flags.seed;
  request.max_tokens = flags.max_tokens;
  request.stop = flags.stop;
  return request;
}

}  // namespace deepinfer
