#include "obs/census.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// Two threads; the phases of layers 0 and 1 and one behind them.
StepProfile Step() {
  StepProfile step;
  step.Begin(2, 3, 4, 1);
  step.Describe(0, {"linear", 0, 100, 8});
  step.Describe(1, {"linear", 1, 50, 4});
  step.Describe(2, {"head", -1, 7, 0});
  for (size_t i = 0; i < 3; ++i) {
    const auto t = static_cast<int64_t>(1000 * i);
    step.Record(0, i, {t, t + 600, t + 1000});
    step.Record(1, i, {t + 10, t + 1000, t + 1000});
  }
  return step;
}

TEST(CensusTest, SumsStepsByGroup) {
  Census census;
  census.Add(Step());
  census.Add(Step());
  EXPECT_EQ(census.steps(), 2);
  const auto rows = census.By([](const std::string& name, int) { return name; });
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "linear");
  EXPECT_EQ(rows[0].calls, 4);
  EXPECT_EQ(rows[0].bytes, 300);
  EXPECT_EQ(rows[0].flops, 24);
  EXPECT_NEAR(rows[0].seconds, 4e-6, 1e-12);
  EXPECT_NEAR(rows[0].wait_seconds, 4 * 0.2e-6, 1e-12);
  const CensusRow layers = census.Total([](const std::string&, int layer) { return layer >= 0; });
  EXPECT_EQ(layers.bytes, 300);
  EXPECT_EQ(census.Total().bytes, 314);
}

TEST(CensusTest, LeavesOutWhatHasNoGroup) {
  Census census;
  census.Add(Step());
  const auto rows =
      census.By([](const std::string&, int layer) { return layer == 1 ? std::string("one") : ""; });
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].bytes, 50);
}

TEST(StepProfileTest, SumsPhases) {
  EXPECT_EQ(Step().bytes(), 157);
  EXPECT_EQ(Step().flops(), 12);
  EXPECT_EQ(Step().n_rows(), 4);
}

}  // namespace
}  // namespace deepinfer
