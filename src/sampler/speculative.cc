#include "sampler/speculative.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace deepinfer {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// ln(sum(exp(logits))).
double LogSum(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double total = 0;
  for (float logit : logits) total += std::exp(double{logit} - largest);
  return largest + std::log(total);
}

// ln max(p - q, 0) of every token.
std::vector<float> LogResidual(std::span<const float> target, std::span<const float> proposal,
                               TokenId draft) {
  std::vector<float> residual(target.begin(), target.end());
  if (proposal.empty()) {  // all of q is at the draft: the others keep p
    residual[static_cast<size_t>(draft)] = kMinusInf;
    return residual;
  }
  const double target_sum = LogSum(target), proposal_sum = LogSum(proposal);
  for (size_t t = 0; t < target.size(); ++t) {
    const double weight = std::exp(target[t] - target_sum) - std::exp(proposal[t] - proposal_sum);
    residual[t] = weight > 0 ? static_cast<float>(std::log(weight)) : kMinusInf;
  }
  return residual;
}

}  // namespace

Verdict VerifyDraft(std::span<const float> target, std::span<const float> proposal, TokenId draft,
                    const DrawKey& key) {
  const auto d = static_cast<size_t>(draft);
  const double p = std::exp(target[d] - LogSum(target));
  const double q = proposal.empty() ? 1 : std::exp(proposal[d] - LogSum(proposal));
  if (UniformFromWord(RandomWords(key, Stream::kAccept, 0)[0]) * q < p) return {true, draft};
  const std::vector<float> residual = LogResidual(target, proposal, draft);
  const bool any = std::ranges::any_of(residual, [](float w) { return w > kMinusInf; });
  // Without a weight, p and q are equal but for rounding.
  return {false, GumbelArgMax(any ? residual : target, key, Stream::kTarget)};
}

}  // namespace deepinfer
