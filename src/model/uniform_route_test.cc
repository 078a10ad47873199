#include "model/uniform_route.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace deepinfer {
namespace {

TEST(UniformRoute, SpreadsDifferentExpertsEvenly) {
  constexpr int32_t kRows = 4000, kExperts = 64, kTopk = 6;
  std::vector<TokenId> tokens(kRows, 17);
  std::vector<int32_t> positions(kRows), ids(kRows * kTopk), again(kRows * kTopk);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> weights(kRows * kTopk);
  const UniformRouteArgs args{
      &kRows, tokens.data(), positions.data(), ids.data(), weights.data(), kExperts, kTopk,
      3,      1.5f};
  UniformRoute(args, {0, 1});
  std::vector<int> uses(kExperts);
  for (int32_t r = 0; r < kRows; ++r) {
    const std::set<int32_t> row(ids.begin() + r * kTopk, ids.begin() + (r + 1) * kTopk);
    ASSERT_EQ(row.size(), size_t{kTopk});
    for (int32_t id : row) ++uses.at(static_cast<size_t>(id));
  }
  // 375 expected, standard deviation 18.
  for (int n : uses) EXPECT_NEAR(n, 375, 100);
  EXPECT_FLOAT_EQ(weights[0], 0.25f);

  UniformRouteArgs split = args;
  split.ids = again.data();
  for (int tid = 0; tid < 3; ++tid) UniformRoute(split, {tid, 3});
  EXPECT_EQ(ids, again);
}

}  // namespace
}  // namespace deepinfer
