#include "sampler/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "sampler/gumbel.h"
#include "sampler/row.h"

namespace deepinfer {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
using Candidate = SamplingWorkspace::Candidate;

void CheckRange(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return;  // false for NaN
  throw Error(Code::kInvalid,
              fmt::format("{}: expected {} to {}, found {}", name, low, high, value));
}

void CheckId(const char* name, TokenId id, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return;
  throw Error(Code::kInvalid,
              fmt::format("{}: expected a token id below {}, found {}", name, vocab_size, id));
}

// Steps 1 and 2: what may not be drawn at all.
void ApplyMasks(std::span<float> logits, const SamplingParams& params, const History& history,
                AllowedTokens allowed) {
  if (!allowed.empty()) {
    if (allowed.size() < (logits.size() + 31) / 32) {
      throw Error(Code::kInvalid, fmt::format("allowed tokens: expected {} bits, found {}",
                                              logits.size(), allowed.size() * 32));
    }
    for (size_t t = 0; t < logits.size(); ++t) {
      if (!Allows(allowed, t)) logits[t] = kMinusInf;
    }
  }
  if (std::cmp_less(history.output.size(), params.min_tokens)) {
    for (TokenId id : params.stop_ids) {
      CheckId("stop_ids", id, std::ssize(logits));
      logits[id] = kMinusInf;
    }
  }
}

// Steps 4 to 6. Each distinct token of the history is visited once; its marks are cleared on the
// way.
void ApplyPenalties(std::span<float> logits, const SamplingParams& params, const History& history,
                    SamplingWorkspace& workspace) {
  const bool repetition = params.repetition_penalty != 1;
  if (!repetition && params.frequency_penalty == 0 && params.presence_penalty == 0) return;
  for (TokenId id : history.prompt) CheckId("prompt token", id, std::ssize(logits));
  for (TokenId id : history.output) CheckId("output token", id, std::ssize(logits));
  workspace.output_count.resize(logits.size());
  workspace.seen.resize(logits.size());

  for (TokenId id : history.output) ++workspace.output_count[id];
  const auto penalise = [&](TokenId id) {
    if (workspace.seen[id]) return;
    workspace.seen[id] = 1;
    float& logit = logits[id];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    const int32_t count = workspace.output_count[id];
    logit -= params.frequency_penalty * static_cast<float>(count);
    if (count > 0) logit -= params.presence_penalty;
  };
  for (TokenId id : history.output) penalise(id);
  if (repetition) std::ranges::for_each(history.prompt, penalise);

  for (TokenId id : history.output) workspace.output_count[id] = workspace.seen[id] = 0;
  for (TokenId id : history.prompt) workspace.seen[id] = 0;
}

float LargestLogit(std::span<const float> logits) {
  const float largest = LargestOf(logits);
  if (std::isfinite(largest)) return largest;
  throw Error(Code::kInvalid, largest < 0
                                  ? "logits: masks and bias leave no token that may be drawn"
                                  : "logits: penalties or temperature overflow the range of float");
}

// Step 9: keep t when softmax(l)[t] >= min_p * largest softmax.
void ApplyMinP(std::span<float> logits, float min_p, float largest) {
  if (min_p <= 0) return;
  const double threshold = double{largest} + std::log(double{min_p});
  for (float& logit : logits) {
    if (logit < threshold) logit = kMinusInf;
  }
}

// Not above the k-th largest value: k groups of tokens have one that is not below it.
float BelowTopK(std::span<const float> logits, size_t k, std::vector<float>& maxima) {
  constexpr size_t kGroup = 64;
  maxima.clear();
  for (size_t i = 0; i < logits.size(); i += kGroup)
    maxima.push_back(LargestOf(logits.subspan(i, std::min(kGroup, logits.size() - i))));
  if (k > maxima.size()) return kMinusInf;
  const auto kth = maxima.begin() + static_cast<int64_t>(k) - 1;
  std::ranges::nth_element(maxima, kth, std::greater());
  return *kth;
}

// Step 10: keep what is not below the k-th largest value; ties at it all stay.
void ApplyTopK(std::span<float> logits, int top_k, SamplingWorkspace& workspace) {
  if (top_k <= 0) return;
  const float bound = BelowTopK(logits, static_cast<size_t>(top_k), workspace.maxima);
  std::vector<float>& values = workspace.values;
  values.clear();
  for (float logit : logits) {
    if (logit > kMinusInf && logit >= bound) values.push_back(logit);
  }
  if (std::ssize(values) < top_k) return;
  const auto kth = values.begin() + (top_k - 1);
  std::ranges::nth_element(values, kth, std::greater());
  const float threshold = *kth;
  for (float& logit : logits) logit = logit < threshold ? kMinusInf : logit;
}

// The 512 steps of 1/8 below the largest logit. What is in the last one, e^-64 and less, never
// reaches the set that top_p keeps.
constexpr int kSteps = 512;
int StepOf(float logit, float largest) {
  return static_cast<int>(std::min((largest - logit) * 8, float{kSteps - 1}));
}

// Step 11: keep t when the probability of all tokens in front of it, by (value, lower id first), is
// below top_p. Weights are added up by step; only the step at the border is sorted.
void ApplyTopP(std::span<float> logits, float top_p, float largest,
               std::vector<Candidate>& candidates) {
  if (top_p >= 1) return;
  double sums[kSteps] = {};
  for (float logit : logits) {
    if (logit > kMinusInf)
      sums[StepOf(logit, largest)] += std::exp(double{logit} - double{largest});
  }
  const double limit = double{top_p} * std::accumulate(sums, sums + kSteps, 0.0);
  double in_front = 0;
  int border = 0;
  while (border < kSteps - 1 && in_front + sums[border] < limit) in_front += sums[border++];

  candidates.clear();
  for (size_t t = 0; t < logits.size(); ++t) {
    if (logits[t] > kMinusInf && StepOf(logits[t], largest) == border)
      candidates.push_back({logits[t], static_cast<TokenId>(t)});
  }
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  Candidate last = candidates.front();
  for (const Candidate& c : candidates) {
    if (in_front >= limit) break;
    in_front += std::exp(double{c.logit} - double{largest});
    last = c;
  }
  for (size_t t = 0; t < logits.size(); ++t) {
    if (logits[t] < last.logit || (logits[t] == last.logit && std::cmp_greater(t, last.id)))
      logits[t] = kMinusInf;
  }
}

}  // namespace

void SamplingParams::Validate(int64_t vocab_size) const {
  CheckRange("temperature", temperature, 0, 2);
  CheckRange("min_p", min_p, 0, 1);
  CheckRange("frequency_penalty", frequency_penalty, -2, 2);
  CheckRange("presence_penalty", presence_penalty, -2, 2);
  if (!(top_p > 0 && top_p <= 1)) {
    throw Error(Code::kInvalid,
                fmt::format("top_p: expected above 0 and at most 1, found {}", top_p));
  }
  if (!(repetition_penalty > 0 && std::isfinite(repetition_penalty))) {
    throw Error(Code::kInvalid,
                fmt::format("repetition_penalty: expected above 0, found {}", repetition_penalty));
  }
  if (top_k < -1)
    throw Error(Code::kInvalid, fmt::format("top_k: expected -1, 0 or more, found {}", top_k));
  if (min_tokens < 0)
    throw Error(Code::kInvalid,
                fmt::format("min_tokens: expected 0 or more, found {}", min_tokens));
  for (const auto& [id, bias] : logit_bias) {
    CheckId("logit_bias", id, vocab_size);
    CheckRange("logit_bias", bias, -100, 100);
  }
  for (TokenId id : stop_ids) CheckId("stop_ids", id, vocab_size);
}

bool SamplingParams::TakesLargestLogit(int64_t n_output) const {
  return EffectiveTemperature() == 0 && logit_bias.empty() && n_output >= min_tokens &&
         repetition_penalty == 1 && frequency_penalty == 0 && presence_penalty == 0;
}

float SamplingParams::EffectiveTemperature() const {
  return temperature < 1e-5f ? 0.0f : std::max(temperature, 0.01f);
}

void CheckLogits(std::span<const float> logits) {
  if (logits.empty()) throw Error(Code::kInvalid, "logits: expected one per token, found none");
  if (AllBelowInfinity(logits)) return;
  const auto bad = std::ranges::find_if(
      logits, [](float l) { return !(l < std::numeric_limits<float>::infinity()); });
  throw Error(Code::kInvalid, fmt::format("logit of token {}: expected a number, found {}",
                                          bad - logits.begin(), *bad));
}

void ProcessLogits(std::span<float> logits, const SamplingParams& params, const History& history,
                   SamplingWorkspace& workspace, AllowedTokens allowed) {
  CheckLogits(logits);
  ApplyMasks(logits, params, history, allowed);
  for (const auto& [id, bias] : params.logit_bias) {
    CheckId("logit_bias", id, std::ssize(logits));
    logits[id] += bias;
  }
  ApplyPenalties(logits, params, history, workspace);
  const float temperature = params.EffectiveTemperature();
  if (temperature != 0 && temperature != 1) {
    for (float& logit : logits) logit /= temperature;
  }
  const float largest = LargestLogit(logits);
  if (temperature == 0) return;
  ApplyMinP(logits, params.min_p, largest);
  ApplyTopK(logits, params.top_k, workspace);
  ApplyTopP(logits, params.top_p, largest, workspace.candidates);
}

TokenId ArgMax(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::find(logits, LargestOf(logits)) - logits.begin());
}

TokenId GumbelArgMax(std::span<const float> logits, const DrawKey& key, Stream stream) {
  GumbelMax best(key, stream);
  best.Add(logits, 0);
  return std::max(best.id(), 0);
}

TokenId Sample(std::span<const float> logits, const SamplingParams& params, const History& history,
               int64_t position, SamplingWorkspace& workspace, AllowedTokens allowed) {
  workspace.logits.assign(logits.begin(), logits.end());
  ProcessLogits(workspace.logits, params, history, workspace, allowed);
  if (params.EffectiveTemperature() == 0) return ArgMax(workspace.logits);
  const DrawKey key{params.seed, params.sample, static_cast<uint32_t>(position)};
  return GumbelArgMax(workspace.logits, key, Stream::kTarget);
}

}  // namespace deepinfer
