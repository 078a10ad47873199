#include "cli/planted_blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 5;

// Whole blocks bring tau tokens, and of drafts with a like confidence as many are accepted as it
// says.
TEST(PlantedBlocks, BringTauTokensAndAreCalibrated) {
  for (const double tau : {1.3, 2.0, 2.75, 4.5, 5.5}) {
    PlantedBlocks blocks(tau, kBlock, 1);
    EXPECT_NEAR(blocks.Tokens(kBlock), tau, 1e-9);
    constexpr int kBlocks = 20000;
    double tokens = 0;
    std::array<double, 4> chance{}, accepted{};
    for (int i = 0; i < kBlocks; ++i) {
      std::array<TokenId, kBlock> ids{};
      std::array<float, kBlock> confidence{};
      blocks.Drafted(1, 0, ids, confidence);
      tokens += 1;
      for (int64_t slot = 0, all = 1; slot < kBlock; ++slot) {
        const bool is_accepted = *blocks.Accepts(1, 0, slot);
        all = all && is_accepted;
        tokens += static_cast<double>(all);
        const double p = 1 / (1 + std::exp(-confidence[static_cast<size_t>(slot)]));
        const auto bin = std::min<size_t>(static_cast<size_t>(p * 4), 3);
        chance[bin] += p;
        accepted[bin] += is_accepted;
      }
    }
    EXPECT_NEAR(tokens / kBlocks, tau, 0.04);
    for (size_t bin = 0; bin < 4; ++bin)
      EXPECT_NEAR(accepted[bin], chance[bin], 5 * std::sqrt(chance[bin] + 1)) << "bin " << bin;
  }
}

}  // namespace
}  // namespace deepinfer
