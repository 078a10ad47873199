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
    : random_(seed), accepted_(static_cast<size_t>(block)) {
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    mean_chance_ = (low + high) / 2;
    (GeometricSum(mean_chance_, block) < tau ? low : high) = mean_chance_;
  }
}

void PlantedBlocks::Drafted(RequestId, int64_t, std::span<TokenId>, std::span<float> confidence) {
  std::gamma_distribution<double> yes(kConcentration * mean_chance_);
  std::gamma_distribution<double> no(kConcentration * (1 - mean_chance_));
  std::uniform_real_distribution<double> unit(0, 1);
  for (size_t slot = 0; slot < accepted_.size(); ++slot) {
    const double a = yes(random_), b = no(random_);
    const double chance = std::clamp(a / (a + b), 1e-4, 1 - 1e-4);
    confidence[slot] = static_cast<float>(std::log(chance / (1 - chance)));
    accepted_[slot] = unit(random_) < chance;
  }
}

std::optional<bool> PlantedBlocks::Accepts(RequestId, int64_t, int64_t slot) {
  return accepted_[static_cast<size_t>(slot)];
}

double PlantedBlocks::Tokens(int64_t depth) const { return GeometricSum(mean_chance_, depth); }

}  // namespace deepinfer
