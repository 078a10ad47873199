#include "sampler/speculative.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sampler/row.h"

namespace deepinfer {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// ln(sum(exp(logits))).
double LogSum(std::span<const float> logits) {
  const double largest = LargestOf(logits);
  double total = 0;
  for (float logit : logits) total += std::exp(double{logit} - largest);
  return largest + std::log(total);
}

// A distribution softmax(logits).
struct Softmax {
  explicit Softmax(std::span<const float> values) : logits(values), log_sum(LogSum(values)) {}
  double operator[](size_t t) const { return std::exp(logits[t] - log_sum); }

  std::span<const float> logits;
  double log_sum;
};

// A draw from max(p - q, 0). Without a weight, p and q are equal but for rounding: then from p.
TokenId DrawResidual(const Softmax& p, std::vector<float> log_weights, const DrawKey& key) {
  const bool any = std::ranges::any_of(log_weights, [](float w) { return w > kMinusInf; });
  return GumbelArgMax(any ? log_weights : p.logits, key, Stream::kTarget);
}

}  // namespace

Verdict VerifyDraft(std::span<const float> target, std::span<const float> proposal, TokenId draft,
                    const DrawKey& key) {
  const auto d = static_cast<size_t>(draft);
  const double u = UniformFromWord(RandomWords(key, Stream::kAccept, 0)[0]);
  const Softmax p(target);
  std::vector<float> log_weights(target.begin(), target.end());
  if (proposal.empty()) {  // all of q is at the draft: the others keep p
    if (u < p[d]) return {true, draft};
    log_weights[d] = kMinusInf;
    return {false, DrawResidual(p, std::move(log_weights), key)};
  }
  const Softmax q(proposal);
  if (u * q[d] < p[d]) return {true, draft};
  for (size_t t = 0; t < target.size(); ++t) {
    const double weight = p[t] - q[t];
    log_weights[t] = weight > 0 ? static_cast<float>(std::log(weight)) : kMinusInf;
  }
  return {false, DrawResidual(p, std::move(log_weights), key)};
}

}  // namespace deepinfer
