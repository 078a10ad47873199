// Draft blocks whose worth is known (bench drafts): what is accepted and how sure the draft stages
// are of it is planted, everything else of a step is computed as always.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "engine/planted_drafts.h"

namespace deepinfer {

// Every draft has a chance of its own, which is its confidence, so that confidences are calibrated;
// it is accepted with that chance. Chances are independent, beta-distributed around one mean such
// that verifying whole blocks would bring `tau` tokens a step. One sequence at a time.
class PlantedBlocks : public PlantedDrafts {
 public:
  // 1 < tau < block + 1.
  PlantedBlocks(double tau, int64_t block, uint64_t seed);

  void Drafted(RequestId id, int64_t n_tokens, std::span<TokenId> tokens,
               std::span<float> confidence) override;
  std::optional<bool> Accepts(RequestId id, int64_t n_tokens, int64_t slot) override;

  // Tokens that a verification of `depth` drafts brings in the mean.
  double Tokens(int64_t depth) const;

 private:
  double mean_chance_ = 0;
  std::mt19937_64 random_;
  std::vector<bool> accepted_;  // of the newest block
};

}  // namespace deepinfer
