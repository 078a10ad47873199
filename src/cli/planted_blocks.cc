#include "cli/planted_blocks.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

namespace {

constexpr double kConcentration = 4;  // of the beta distribution: 0.2 around a mean of 0.5

// 1 + p + p^2 + ... + p^depth
double GeometricSum(double p, int64_t depth) {
  double sum = 1;
  for (int64_t i = 0; i < depth; ++i) sum = 1 + p * sum;
  return sum;
}

}  // namespace

PlantedBlocks::PlantedBlocks(double tau, int64_t block, uint64_t seed)
    : block_(block), random_(seed) {
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    mean_chance_ = (low + high) / 2;
    (GeometricSum(mean_chance_, block) < tau ? low : high) = mean_chance_;
  }
}

const PlantedBlocks::Draft& PlantedBlocks::At(int64_t position) {
  while (std::ssize(drafts_) <= position) {
    std::gamma_distribution<double> yes(kConcentration * mean_chance_);
    std::gamma_distribution<double> no(kConcentration * (1 - mean_chance_));
    std::uniform_real_distribution<double> unit(0, 1);
    const double a = yes(random_), b = no(random_);
    const double chance = std::clamp(a / (a + b), 1e-4, 1 - 1e-4);
    const auto confidence = static_cast<float>(std::log(chance / (1 - chance)));
    drafts_.push_back({confidence, unit(random_) < chance});
  }
  return drafts_[static_cast<size_t>(position)];
}

double PlantedBlocks::Tokens(int64_t depth) const { return GeometricSum(mean_chance_, depth); }

double PlantedBlocks::TokensBetween(int64_t first, int64_t end, int64_t depth) {
  int64_t steps = 0, position = first;
  for (; position < end; ++steps) {
    const int64_t block_end = position + depth;
    while (position < block_end && Accepts(position)) ++position;
    ++position;  // the model's own token
  }
  return steps == 0 ? 1 : static_cast<double>(position - first) / static_cast<double>(steps);
}

void PlantedAnswer::Drafted(RequestId, int64_t n_tokens, std::span<TokenId>,
                            std::span<float> confidence) {
  for (float& c : confidence) c = blocks_.Confidence(n_tokens++);
}

std::optional<bool> PlantedAnswer::Accepts(RequestId, int64_t n_tokens, int64_t slot) {
  return blocks_.Accepts(n_tokens + slot);
}

}  // namespace deepinfer
