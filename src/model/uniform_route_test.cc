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
      &kRows, tokens.data(), positions.data(), ids.data(), weights.data(), kExperts, kTopk, 3, 1.5f,
      -1};
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

// Six rows, as a verification has: neighbours share the part asked for, others nothing, and every
// expert is used equally.
TEST(UniformRoute, NeighboursShareExperts) {
  constexpr int32_t kRows = 3600, kExperts = 36, kTopk = 6;
  std::vector<TokenId> tokens(kRows, 17);
  std::vector<int32_t> positions(kRows), ids(kRows * kTopk);
  std::iota(positions.begin(), positions.end(), 1000);
  std::vector<float> weights(kRows * kTopk);
  for (const float overlap : {0.0f, 0.3f, 1.0f}) {
    UniformRoute({&kRows, tokens.data(), positions.data(), ids.data(), weights.data(), kExperts,
                  kTopk, 3, 1.5f, overlap},
                 {0, 1});
    const auto common = [&](int32_t a, int32_t b) {
      const std::set<int32_t> first(&ids[size_t(a) * kTopk], &ids[size_t(a + 1) * kTopk]);
      return std::count_if(&ids[size_t(b) * kTopk], &ids[size_t(b + 1) * kTopk],
                           [&](int32_t id) { return first.contains(id); });
    };
    double shared = 0;
    for (int32_t r = 0; r + 1 < kRows; ++r) shared += static_cast<double>(common(r, r + 1));
    EXPECT_NEAR(shared / (kRows - 1) / kTopk, overlap, 0.01);
    if (overlap == 1) continue;
    EXPECT_EQ(common(10, 12), 0);
    EXPECT_EQ(common(10, 15), 0);
    std::vector<int> uses(kExperts);
    for (const int32_t id : ids) ++uses.at(static_cast<size_t>(id));
    for (const int n : uses) EXPECT_NEAR(n, 600, 6);
  }
}

}  // namespace
}  // namespace deepinfer
