#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace deepinfer {
namespace {

double Rows(int64_t rows) { return static_cast<double>(rows); }

TEST(StepCost, BelievesUntilItMeasures) {
  StepCost cost(Rows);
  EXPECT_EQ(cost.Seconds(3), 0);
  EXPECT_EQ(cost.SecondsOfNext(1), 0);
  cost.Measured(1, 2.0);
  EXPECT_NEAR(cost.Seconds(1), 2, 1e-9);
  EXPECT_NEAR(cost.Seconds(3), 6, 1e-9);
  EXPECT_LT(cost.SecondsOfNext(1), 2) << "rows that nobody measured are tried";
  EXPECT_GT(cost.SecondsOfNext(1), 0) << "but are not free";
}

TEST(StepCost, LearnsWhatRowsCost) {
  for (const double slope : {0.0, 0.3, 1.0, 1.8}) {
    std::mt19937 random(3);
    std::normal_distribution<double> noise(1, 0.03);
    StepCost cost(Rows);
    for (int i = 0; i < 60; ++i) {
      const int64_t rows = 1 + i % 6;
      cost.Measured(rows, (1 + slope * static_cast<double>(rows - 1)) * noise(random));
    }
    EXPECT_NEAR(cost.Seconds(1), 1, 0.06) << slope;
    EXPECT_NEAR(cost.Seconds(6), 1 + 5 * slope, 0.06 * (1 + 5 * slope)) << slope;
  }
}

// Steps of one number of rows say how fast the machine is now, for all numbers.
TEST(StepCost, FollowsTheMachine) {
  StepCost cost(Rows);
  for (int i = 0; i < 30; ++i) cost.Measured(1 + i % 6, 1 + 0.5 * (i % 6));
  for (int i = 0; i < 30; ++i) cost.Measured(6, 1.4 * 3.5);
  EXPECT_NEAR(cost.Seconds(6), 1.4 * 3.5, 0.1);
  EXPECT_NEAR(cost.Seconds(1), 1.4, 0.1);
}

// Rows that take seven times what was believed look like outliers at first, and the filter doubts
// all it knows. But a step takes time.
TEST(StepCost, StaysAboveZeroWhereRowsAreMuchDearer) {
  StepCost cost([](int64_t rows) { return 0.85 + 0.15 * Rows(rows); });
  for (const double seconds : {1.06, 1.02, 1.08}) cost.Measured(1, seconds);
  constexpr std::pair<int64_t, double> kSteps[] = {{6, 6.13}, {5, 5.06}, {6, 6.08},
                                                   {5, 4.95}, {5, 5.08}, {6, 6.17}};
  for (const auto& [rows, seconds] : kSteps) {
    cost.Measured(rows, seconds);
    EXPECT_GT(cost.Seconds(1), 0.5);
    EXPECT_LT(cost.Seconds(1), 3);
  }
  for (int i = 0; i < 3; ++i) cost.Measured(1, 1);
  EXPECT_NEAR(cost.Seconds(1), 1, 0.1);
  EXPECT_NEAR(cost.Seconds(6), 6, 0.6);
}

TEST(StepCost, AnOutlierCountsLittle) {
  StepCost cost(Rows);
  for (int i = 0; i < 20; ++i) cost.Measured(1, 1);
  cost.Measured(1, 50);
  EXPECT_LT(cost.Seconds(1), 1.2);
}

}  // namespace
}  // namespace deepinfer
