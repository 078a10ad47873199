#include "sampler/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace deepinfer {
namespace {

// Probabilities 1/8 1/2 1/8 1/4 as logits with an arbitrary common offset.
const std::vector<float> kLogits{std::log(1.0f) + 30, std::log(4.0f) + 30, std::log(1.0f) + 30,
                                 std::log(2.0f) + 30};

TEST(Logprobs, AreLogProbabilitiesOfTheRawLogits) {
  TokenLogprobs result;
  ComputeLogprobs(kLogits, 3, 4, &result);
  EXPECT_NEAR(result.chosen, std::log(0.25), 1e-6);
  ASSERT_EQ(result.top.size(), 4u);
  const TokenId order[] = {1, 3, 0, 2};
  const double probability[] = {0.5, 0.25, 0.125, 0.125};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(result.top[i].first, order[i]);
    EXPECT_NEAR(result.top[i].second, std::log(probability[i]), 1e-6);
  }
}

TEST(Logprobs, CutsTiesAtTheLowerId) {
  TokenLogprobs result;
  ComputeLogprobs(kLogits, 2, 3, &result);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[2].first, 0) << "tokens 0 and 2 are equal";
}

TEST(Logprobs, RankCountsAllThatAreNotBelow) {
  TokenLogprobs result;
  const int ranks[] = {4, 1, 4, 2};
  for (TokenId t = 0; t < 4; ++t) {
    ComputeLogprobs(kLogits, t, 0, &result);
    EXPECT_EQ(result.rank, ranks[t]);
    EXPECT_TRUE(result.top.empty());
  }
}

TEST(Logprobs, SurvivesLargeValuesAndMaskedTokens) {
  TokenLogprobs result;
  ComputeLogprobs(std::vector<float>{3e38f, -3e38f, -std::numeric_limits<float>::infinity()}, 0, 20,
                  &result);
  EXPECT_EQ(result.chosen, 0);
  EXPECT_EQ(result.top.size(), 3u);
}

TEST(Logprobs, RefusesBadInput) {
  TokenLogprobs result;
  EXPECT_THROW(ComputeLogprobs(kLogits, 0, 21, &result), Error);
  EXPECT_THROW(ComputeLogprobs(kLogits, 0, -1, &result), Error);
  EXPECT_THROW(ComputeLogprobs(std::vector<float>{0, std::nanf("")}, 0, 1, &result), Error);
}

}  // namespace
}  // namespace deepinfer
