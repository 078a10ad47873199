#include "engine/depth_policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace deepinfer {

namespace {

constexpr int64_t kMostRows = 64;    // steps of more rows are not learned from
constexpr int64_t kMostWeight = 16;  // of a number of rows in the fit
constexpr double kBelief = 0.05;     // weight of the believed growth in the fit
constexpr double kShrink = 4;        // verifications' worth of the mean in a slot's correction
constexpr double kFade = 0.98;       // of sums, a step
constexpr int64_t kPlainSteps = 4;   // first of all: what a step without drafts takes
constexpr int64_t kProbes = 3;       // then, and after a pause: steps at full depth, to learn
constexpr int64_t kTrial = 12;       // steps with drafts before they are judged
constexpr int64_t kRetrial = 4;      // the same after a pause
constexpr int64_t kExplore = 32;     // every so many choices another depth is tried
constexpr int64_t kFirstPause = 64, kLongestPause = 4096;

// Chance that the confidence head gives a draft. NaN (bad weights) promises nothing.
double Sigmoid(double x) { return std::isnan(x) ? 0 : 1 / (1 + std::exp(-x)); }

}  // namespace

DepthPolicy::DepthPolicy(int64_t most, std::function<double(int64_t)> relative_cost)
    : most_(most),
      relative_cost_(std::move(relative_cost)),
      measured_(kMostRows + 1),
      expected_(static_cast<size_t>(most)),
      accepted_(static_cast<size_t>(most)),
      pause_(kPlainSteps),
      probes_(kProbes),
      next_pause_(kFirstPause) {}

double DepthPolicy::Growth(int64_t rows) {
  while (std::ssize(growth_) <= rows) {
    const double cost = relative_cost_(std::max<int64_t>(std::ssize(growth_), 1));
    growth_.push_back(cost / relative_cost_(1) - 1);
  }
  return growth_[static_cast<size_t>(rows)];
}

// Least squares, with the believed growth as one more measurement of the slope.
void DepthPolicy::Fit() {
  double weights = 0, mean_growth = 0, mean_seconds = 0;
  for (int64_t rows = 1; rows <= kMostRows; ++rows) {
    const Measured& m = measured_[static_cast<size_t>(rows)];
    if (m.n == 0) continue;
    const auto weight = static_cast<double>(std::min(m.n, kMostWeight));
    weights += weight;
    mean_growth += weight * Growth(rows);
    mean_seconds += weight * m.seconds;
  }
  mean_growth /= weights;
  mean_seconds /= weights;
  const double believed = mean_seconds / (1 + mean_growth);  // slope if the belief is right
  const double belief = kBelief * Growth(1 + most_) * Growth(1 + most_);
  double up = belief * believed, down = belief;
  for (int64_t rows = 1; rows <= kMostRows; ++rows) {
    const Measured& m = measured_[static_cast<size_t>(rows)];
    const auto weight = static_cast<double>(std::min(m.n, kMostWeight));
    const double growth = Growth(rows) - mean_growth;
    up += weight * growth * (m.seconds - mean_seconds);
    down += weight * growth * growth;
  }
  slope_s_ = std::max(up / down, 0.0);
  base_s_ = mean_seconds - slope_s_ * mean_growth;
}

double DepthPolicy::Chance(float confidence, int64_t slot) const {
  const double overall = std::accumulate(accepted_.begin(), accepted_.end(), 1.0) /
                         std::accumulate(expected_.begin(), expected_.end(), 1.0);
  const auto s = static_cast<size_t>(slot);
  return std::min(
      1.0, Sigmoid(confidence) * (accepted_[s] + kShrink * overall) / (expected_[s] + kShrink));
}

void DepthPolicy::Choose(std::span<const float> confidence, int64_t block,
                         std::span<int64_t> depths) {
  if (probes_ > 0) return std::fill(depths.begin(), depths.end(), most_);
  if (++n_choices_ % kExplore == 0)
    return std::fill(depths.begin(), depths.end(), n_choices_ / kExplore % (most_ + 1));
  std::fill(depths.begin(), depths.end(), 0);
  const int64_t n = std::ssize(depths);
  const double rate =
      time_ > 0 ? tokens_ / time_ : static_cast<double>(n) / std::max(StepSeconds(n), 1e-12);
  std::vector<double> survival;  // of the next draft of each sequence
  for (int64_t s = 0; s < n; ++s)
    survival.push_back(Chance(confidence[static_cast<size_t>(s * block)], 0));
  for (int64_t rows = n;; ++rows) {
    const auto best = std::max_element(survival.begin(), survival.end());
    if (*best <= rate * (StepSeconds(rows + 1) - StepSeconds(rows))) return;
    const int64_t s = best - survival.begin();
    const int64_t depth = ++depths[static_cast<size_t>(s)];
    const auto next = static_cast<size_t>(s * block + depth);
    *best = depth < most_ ? *best * Chance(confidence[next], depth) : 0;
  }
}

void DepthPolicy::Verified(std::span<const float> confidence, int64_t depth, int64_t accepted) {
  double survival = 1;
  for (int64_t slot = 0; slot < depth; ++slot) {
    survival *= Chance(confidence[static_cast<size_t>(slot)], slot);
    promised_ += survival;
  }
  for (int64_t slot = 0; slot < std::min(depth, accepted + 1); ++slot) {
    const auto s = static_cast<size_t>(slot);
    expected_[s] = expected_[s] * kFade + Sigmoid(confidence[s]);
    accepted_[s] = accepted_[s] * kFade + (slot < accepted ? 1 : 0);
  }
}

void DepthPolicy::Stepped(int64_t n_seqs, int64_t rows, double step_s, double draft_s) {
  const double tokens = static_cast<double>(n_seqs) + std::exchange(promised_, 0);
  if (rows <= kMostRows) {
    Measured& m = measured_[static_cast<size_t>(rows)];
    m.n = std::min(m.n + 1, kMostWeight);
    m.seconds += (step_s - m.seconds) / static_cast<double>(m.n);
    Fit();
  }
  if (pause_ > 0) {
    --pause_;
    return;
  }
  if (draft_s == 0) return;
  if (probes_ > 0) {
    --probes_;
    return;
  }
  tokens_ = tokens_ * kFade + tokens;
  time_ = time_ * kFade + step_s + draft_s;
  ++n_judged_;
  Judge(n_seqs);
}

// Pauses drafting when plain decoding would emit faster.
void DepthPolicy::Judge(int64_t n_seqs) {
  if (n_judged_ < (next_pause_ == kFirstPause ? kTrial : kRetrial)) return;
  const Measured* m = n_seqs <= kMostRows ? &measured_[static_cast<size_t>(n_seqs)] : nullptr;
  const double plain_s = m != nullptr && m->n >= kPlainSteps ? m->seconds : StepSeconds(n_seqs);
  const double plain = static_cast<double>(n_seqs) / plain_s;
  if (tokens_ / time_ >= plain) {
    if (n_judged_ >= kTrial) next_pause_ = kFirstPause;
    return;
  }
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
  probes_ = kProbes;
  n_judged_ = 0;
  tokens_ = time_ = 0;
}

}  // namespace deepinfer
