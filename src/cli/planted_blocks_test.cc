#include "cli/planted_blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 5, kPositions = 100000;

// Whole blocks bring tau tokens, and of drafts with a like confidence as many are accepted as it
// says.
TEST(PlantedBlocks, BringTauTokensAndAreCalibrated) {
  for (const double tau : {1.3, 2.0, 2.75, 4.5, 5.5}) {
    PlantedBlocks blocks(tau, kBlock, 1);
    EXPECT_NEAR(blocks.Tokens(kBlock), tau, 1e-9);
    for (int64_t depth = 0; depth <= kBlock; ++depth) {
      EXPECT_NEAR(blocks.TokensBetween(0, kPositions, depth), blocks.Tokens(depth), 0.04)
          << "tau " << tau << " depth " << depth;
    }
    std::array<double, 4> chance{}, accepted{};
    for (int64_t position = 0; position < kPositions; ++position) {
      const double p = 1 / (1 + std::exp(-blocks.Confidence(position)));
      const auto bin = std::min<size_t>(static_cast<size_t>(p * 4), 3);
      chance[bin] += p;
      accepted[bin] += blocks.Accepts(position);
    }
    for (size_t bin = 0; bin < 4; ++bin)
      EXPECT_NEAR(accepted[bin], chance[bin], 5 * std::sqrt(chance[bin] + 1)) << "bin " << bin;
  }
}

// What an answer meets belongs to its positions, in whatever blocks it comes to them.
TEST(PlantedBlocks, AnswersMeetTheSameVerdicts) {
  PlantedBlocks blocks(2.75, kBlock, 3), again(2.75, kBlock, 3);
  PlantedAnswer one(&blocks, std::nullopt), other(&again, 2);
  EXPECT_EQ(one.Depth(), std::nullopt);
  EXPECT_EQ(other.Depth(), 2);
  std::array<TokenId, kBlock> ids{};
  std::array<float, kBlock> confidence{}, shifted{};
  other.Drafted(1, 99, ids, shifted);
  for (int64_t n = 0; n < 100; ++n) {
    one.Drafted(1, n, ids, confidence);
    other.Drafted(2, n + 1, ids, shifted);
    for (int64_t slot = 1; slot < kBlock; ++slot) {
      EXPECT_EQ(confidence[static_cast<size_t>(slot)], shifted[static_cast<size_t>(slot) - 1]);
      EXPECT_EQ(one.Accepts(1, n, slot), other.Accepts(2, n + 1, slot - 1));
    }
  }
}

}  // namespace
}  // namespace deepinfer
