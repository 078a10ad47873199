#include "engine/depth_policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace deepinfer {

namespace {

constexpr int64_t kMostRows = 64;     // steps of more rows are not learned from
constexpr double kShrink = 4;         // verifications' worth of the mean in a slot's correction
constexpr double kFade = 0.98;        // of sums, a step
constexpr int64_t kPlainSteps = 3;    // first of all: what a step without drafts takes
constexpr double kMostLost = 1.5;     // plain steps, before drafting pauses
constexpr double kRetrialLost = 0.5;  // the same after a pause
constexpr double kMostWon = 8;        // that a loss is weighed against
// Steps with drafts in a row before a plain one is measured again: at first, and in the long run.
constexpr int64_t kFirstDrafted = 8, kMostDrafted = 128;
constexpr int64_t kFirstPause = 64, kLongestPause = 4096;
constexpr double kPauseOfLost = 128;  // steps of a pause, for every plain step lost beyond that
constexpr double kDraftSteps = 8;     // that the mean cost of a draft is of
constexpr double kMostGrowth = 3;     // of that mean that a draft counts for
// The first choice, the eighth, ... verify more than seems worth it, so that chances that
// are believed small are seen. The first of all is no more than the trial: what rows cost is not
// known yet.
constexpr int64_t kTrialRows = 2, kTrialFactor = 8, kLongestUntried = 512;

// Chance that the confidence head gives a draft. NaN (bad weights) promises nothing.
double Sigmoid(double x) { return std::isnan(x) ? 0 : 1 / (1 + std::exp(-x)); }

}  // namespace

DepthPolicy::DepthPolicy(int64_t most, BelievedCosts believed)
    : most_(most),
      cost_(believed.step),
      draft_cost_(believed.draft / believed.step(1)),
      expected_(static_cast<size_t>(most)),
      accepted_(static_cast<size_t>(most)),
      next_trial_(1),
      pause_(kPlainSteps),
      next_pause_(kFirstPause),
      next_plain_(kFirstDrafted) {}

double DepthPolicy::Chance(float confidence, int64_t slot) const {
  const double overall = std::accumulate(accepted_.begin(), accepted_.end(), 1.0) /
                         std::accumulate(expected_.begin(), expected_.end(), 1.0);
  const auto s = static_cast<size_t>(slot);
  return std::min(
      1.0, Sigmoid(confidence) * (accepted_[s] + kShrink * overall) / (expected_[s] + kShrink));
}

void DepthPolicy::Choose(std::span<const float> confidence, int64_t block,
                         std::span<int64_t> depths) {
  std::fill(depths.begin(), depths.end(), 0);
  const int64_t n = std::ssize(depths);
  const double plain_s = std::max(cost_.Seconds(n), 1e-12);
  const double rate = (time_ > 0 ? tokens_ / time_ : static_cast<double>(n)) / plain_s;
  std::vector<double> survival;  // of the next draft of each sequence
  for (int64_t s = 0; s < n; ++s)
    survival.push_back(Chance(confidence[static_cast<size_t>(s * block)], 0));
  for (int64_t rows = n;; ++rows) {
    const auto best = std::max_element(survival.begin(), survival.end());
    if (*best <= 0 || *best <= rate * cost_.SecondsOfNext(rows)) break;
    const int64_t s = best - survival.begin();
    const int64_t depth = ++depths[static_cast<size_t>(s)];
    const auto next = static_cast<size_t>(s * block + depth);
    *best = depth < most_ ? *best * Chance(confidence[next], depth) : 0;
  }
  is_trial_ = ++n_choices_ == next_trial_;
  if (!is_trial_) return;
  next_trial_ += std::min((kTrialFactor - 1) * n_choices_, kLongestUntried);
  const int64_t most = n_choices_ == 1 ? std::min(kTrialRows, most_) : most_;
  for (int64_t& depth : depths) depth = std::min(depth + kTrialRows, most);
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
  if (rows <= kMostRows) cost_.Measured(rows, step_s);
  if (pause_ > 0) {
    --pause_;
    return;
  }
  if (draft_s == 0) return;
  NoteDraft(draft_s / cost_.Seconds(n_seqs));
  if (!std::exchange(is_trial_, false)) Judge(n_seqs, rows, tokens);
  if (pause_ > 0 || ++n_drafted_ < next_plain_) return;
  pause_ = 1;
  n_drafted_ = 0;
  next_plain_ = std::min(2 * next_plain_, kMostDrafted);
}

// The first draft says more than the belief; then a mean.
void DepthPolicy::NoteDraft(double cost) {
  const double weight = 1 / std::min(static_cast<double>(++n_draft_costs_), kDraftSteps);
  if (n_draft_costs_ > 1) cost = std::min(cost, kMostGrowth * draft_cost_);
  draft_cost_ += (cost - draft_cost_) * weight;
}

// Pauses drafting when plain decoding would have emitted more. Counts what was promised and what
// was expected to be needed: chance says less about the next step.
void DepthPolicy::Judge(int64_t n_seqs, int64_t rows, double promised) {
  const double plain_s = cost_.Seconds(n_seqs);
  const double time = cost_.Seconds(rows) / plain_s + draft_cost_;
  tokens_ = tokens_ * kFade + promised;
  time_ = time_ * kFade + time;
  lost_ = std::max(lost_ + time - promised / static_cast<double>(n_seqs), -kMostWon);
  if (lost_ <= kMostLost) {
    if (lost_ <= -kMostWon) next_pause_ = kFirstPause;
    return;
  }
  const auto of_lost = static_cast<int64_t>(kPauseOfLost * (lost_ - kMostLost));
  pause_ = std::clamp(of_lost, next_pause_, kLongestPause);
  next_pause_ = std::min(2 * pause_, kLongestPause);
  lost_ = kMostLost - kRetrialLost;
  tokens_ = time_ = 0;
}

}  // namespace deepinfer
