#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace deepinfer {

namespace {

// Standard deviations, in parts of what they belong to.
constexpr double kBelief = 0.8;    // of the believed slope
constexpr double kNoise = 0.04;    // of a measurement
constexpr double kDrift = 0.02;    // of machine speed, from step to step
constexpr double kChange = 0.003;  // of the slope, likewise
constexpr double kOutlier = 3;     // standard deviations that a measurement counts for at most
constexpr double kDoubt = 4;       // growth of the variance after one that would count for more
constexpr double kLeast = 0.5;     // part of the base that one measurement leaves: it stays above 0

}  // namespace

StepCost::StepCost(std::function<double(int64_t)> believed) : believed_(std::move(believed)) {}

double StepCost::Growth(int64_t rows) { return rows <= 1 ? 0 : believed_(rows) / believed_(1) - 1; }

void StepCost::Measured(int64_t rows, double seconds) {
  const double growth = Growth(rows);
  if (base_ == 0) {
    base_ = slope_ = seconds / (1 + growth);
    base_base_ = base_slope_ = kNoise * kNoise * base_ * base_;
    slope_slope_ = base_base_ + kBelief * kBelief * base_ * base_;
    return;
  }
  base_base_ += kDrift * kDrift * base_ * base_;
  base_slope_ += kDrift * kDrift * base_ * slope_;
  slope_slope_ += kDrift * kDrift * slope_ * slope_ + kChange * kChange * base_ * base_;
  const double expected = Seconds(rows);
  const double to_base = base_base_ + growth * base_slope_;
  const double to_slope = base_slope_ + growth * slope_slope_;
  const double noise = kNoise * expected;
  const double variance = to_base + growth * to_slope + noise * noise;
  const double most = kOutlier * std::sqrt(variance);
  const double error = std::clamp(seconds - expected, -most, most);
  const bool is_outlier = std::abs(seconds - expected) > most;
  base_ = std::max(base_ + to_base / variance * error, base_ * kLeast);
  slope_ = std::max(slope_ + to_slope / variance * error, 0.0);
  base_base_ -= to_base * to_base / variance;
  base_slope_ -= to_base * to_slope / variance;
  slope_slope_ -= to_slope * to_slope / variance;
  if (!is_outlier) return;
  for (double* c : {&base_base_, &base_slope_, &slope_slope_}) *c *= kDoubt;
}

double StepCost::SecondsOfNext(int64_t rows) {
  if (base_ == 0) return 0;
  const double given_base = slope_slope_ - base_slope_ * base_slope_ / base_base_;
  const double slope = slope_ - std::sqrt(std::max(given_base, 0.0));
  return std::max(slope, 0.0) * (Growth(rows + 1) - Growth(rows));
}

}  // namespace deepinfer
