#include "engine/chunk_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace deepinfer {

namespace {

constexpr double kTokens = 20;      // over which the slowdown holds
constexpr double kMostLonger = 5;   // plain steps, that a chunk may make its step longer by
constexpr double kNew = 0.3;        // weight of a new measurement
constexpr double kNewTokens = 0.1;  // likewise
constexpr double kOutlier = 1;      // it counts for twice what was known, or half of it, at most

}  // namespace

ChunkPolicy::ChunkPolicy(double slowdown, std::function<double(int64_t)> believed)
    : slowdown_(slowdown), believed_(std::move(believed)) {}

// Between numbers of rows measured the rate is a power of the rows. More rows than were ever
// measured are expected to cost in proportion, when that is more than believed: rows share weights,
// so it is too much.
double ChunkPolicy::Seconds(int64_t rows) {
  const double at = std::log2(static_cast<double>(rows));
  const Measured *below = nullptr, *above = nullptr;
  for (const Measured& m : measured_) {
    if (!m.any) continue;
    if (m.rows <= at) below = &m;
    if (m.rows >= at && above == nullptr) above = &m;
  }
  if (below == nullptr) below = above;
  if (below == nullptr) return 0;
  if (above == nullptr) {
    const double most =
        believed_(std::lround(std::exp2(below->rows))) * std::exp2(at - below->rows);
    return std::exp2(below->rate) * std::max(believed_(rows), most);
  }
  const double gap = above->rows - below->rows;
  const double part = gap > 0 ? (at - below->rows) / gap : 0;
  return std::exp2(below->rate + part * (above->rate - below->rate)) * believed_(rows);
}

// Steps that bring the tokens over which the slowdown holds.
int64_t ChunkPolicy::WindowSteps() const {
  return std::max(static_cast<int64_t>(kTokens / tokens_), int64_t{1});
}

// The window in equal parts of which none grants more than a chunk may take.
int64_t ChunkPolicy::PartSteps() const {
  const auto window = static_cast<double>(WindowSteps());
  const double parts = std::ceil((slowdown_ - 1) * window / kMostLonger);
  return std::max(static_cast<int64_t>(window / parts), int64_t{1});
}

// What prompts made the last `steps` steps longer by.
double ChunkPolicy::Spent(int64_t steps) const {
  const auto n = std::min(steps, std::ssize(longer_));
  return std::accumulate(longer_.begin(), longer_.begin() + n, 0.0);
}

int64_t ChunkPolicy::Rows(int64_t answer_rows, int64_t prompt_rows, int64_t most) {
  most = std::min(most, prompt_rows);
  if (slowdown_ == 0 || answer_rows == 0) return most;
  double left = std::numeric_limits<double>::infinity();
  for (const int64_t steps : {WindowSteps(), PartSteps()})
    left = std::min(left, (slowdown_ - 1) * static_cast<double>(steps) - Spent(steps - 1));
  const double most_seconds = Seconds(answer_rows) * (1 + left);
  int64_t fits = 0, too_many = most + 1;
  while (fits + 1 < too_many) {
    const int64_t rows = (fits + too_many) / 2;
    (Seconds(answer_rows + rows) <= most_seconds ? fits : too_many) = rows;
  }
  if (fits == most) return fits;
  if (Spent(WindowSteps() - 1) == 0) return std::max<int64_t>(fits, 1);
  return Spent(PartSteps() - 1) > 0 ? 0 : fits;
}

void ChunkPolicy::Stepped(int64_t answer_rows, int64_t prompt_rows, double tokens, double seconds) {
  if (slowdown_ == 0) return;
  if (answer_rows == 0) {
    longer_.clear();
  } else {
    const double plain = prompt_rows > 0 ? Seconds(answer_rows) : 0;
    longer_.push_front(plain > 0 ? std::max(seconds / plain - 1, 0.0) : 0);
    if (std::ssize(longer_) > static_cast<int64_t>(kTokens)) longer_.pop_back();
    tokens_ += kNewTokens * (tokens - tokens_);
  }
  const double change = Learn(answer_rows + prompt_rows, seconds);
  if (prompt_rows > 0) return;
  // Chunks are rare: what steps without them learned of the machine is true of them as well.
  const double most = std::log2(static_cast<double>(answer_rows)) + 1;
  for (Measured& m : measured_) m.rate += m.any && m.rows > most ? change : 0;
}

// Returns by what the logarithm of the rate of such steps changed.
double ChunkPolicy::Learn(int64_t rows, double seconds) {
  const double log_rows = std::log2(static_cast<double>(rows));
  Measured& m = measured_[std::min(static_cast<size_t>(log_rows), measured_.size() - 1)];
  const double rate = std::log2(seconds / believed_(rows));
  if (!m.any) {
    m = {true, log_rows, rate};
    return 0;
  }
  const double change = kNew * std::clamp(rate - m.rate, -kOutlier, kOutlier);
  m.rows += kNew * (log_rows - m.rows);
  m.rate += change;
  return change;
}

}  // namespace deepinfer
