#include "sampler/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "sampler/row.h"
#include "sampler/sampling.h"

namespace deepinfer {

void ComputeLogprobs(std::span<const float> logits, TokenId chosen, int top, TokenLogprobs* out) {
  DI_CHECK(chosen >= 0 && chosen < std::ssize(logits))
      << "token " << chosen << " of " << logits.size();
  if (top < 0 || top > kMaxTopLogprobs) {
    throw Error(Code::kInvalid,
                fmt::format("top_logprobs: expected 0 to {}, found {}", kMaxTopLogprobs, top));
  }
  CheckLogits(logits);
  const float largest = LargestOf(logits);
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit} - double{largest});
  const double log_total = double{largest} + std::log(sum);

  out->chosen = static_cast<float>(double{logits[chosen]} - log_total);
  out->rank = static_cast<int>(
      std::ranges::count_if(logits, [&](float logit) { return logit >= logits[chosen]; }));

  // A sorted list of at most 20: an entry enters in front of the smaller ones, so equal values stay
  // in order of their ids.
  auto& best = out->top;
  best.clear();
  best.reserve(kMaxTopLogprobs + 1);
  if (top == 0) return;
  for (TokenId t = 0; t < std::ssize(logits); ++t) {
    if (std::ssize(best) == top && !(logits[t] > best.back().second)) continue;
    const auto at =
        std::ranges::find_if(best, [&](const auto& entry) { return entry.second < logits[t]; });
    best.insert(at, {t, logits[t]});
    if (std::ssize(best) > top) best.pop_back();
  }
  for (auto& [id, value] : best) value = static_cast<float>(double{value} - log_total);
}

}  // namespace deepinfer
