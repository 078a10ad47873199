#include "verify/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"

namespace deepinfer {

ValueKind KindOf(std::string_view array) {
  const std::string_view last = array.substr(array.rfind('.') + 1);  // npos + 1 is 0
  if (last.find("logits") != std::string_view::npos) return ValueKind::kLogits;
  return last == "output" || array.starts_with("streams.") ? ValueKind::kStreams
                                                           : ValueKind::kOther;
}

Tolerance ToleranceOf(const std::string& mode) {
  if (mode == "fp32") {
    return {.sharp = true,
            .limits = {2e-4, 1e-4, 5e-5},
            .near_tie = 1e-3,
            .argmax_share = 1.0,
            .layer_equal = 0,
            .layer_relative = 0};
  }
  DI_CHECK(mode == "release" || mode == "trn2") << mode;
  return {.sharp = false,
          .limits = {0.20, 0.20, 0.35},
          .near_tie = 1.0,
          .argmax_share = 0.98,
          .layer_equal = 0.95,
          .layer_relative = 2e-3};
}

namespace {

// Values of larger size carry larger rounding: the limit grows from magnitude 10 on.
Distance LargestDifference(double limit, std::span<const float> want, std::span<const float> got) {
  double worst = 0, magnitude = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(worst, d);
    magnitude = std::max(magnitude, std::fabs(static_cast<double>(want[i])));
  }
  return {worst, limit * std::max(1.0, magnitude / 10)};
}

}  // namespace

Distance Compare(const Tolerance& tolerance, ValueKind kind, std::span<const float> want,
                 std::span<const float> got) {
  DI_CHECK(want.size() == got.size()) << want.size() << " and " << got.size() << " values";
  const double limit = tolerance.limits[static_cast<size_t>(kind)];
  if (tolerance.sharp) return LargestDifference(limit, want, got);
  EqualityTally tally;
  tally.Add(want, got);
  return {tally.relative(), limit};
}

void EqualityTally::Add(std::span<const float> want, std::span<const float> got) {
  DI_CHECK(want.size() == got.size()) << want.size() << " and " << got.size() << " values";
  values += static_cast<int64_t>(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    equal += got[i] == want[i];
    square_difference += d * d;
    square_want += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
}

double EqualityTally::share() const {
  return values == 0 ? 1.0 : static_cast<double>(equal) / static_cast<double>(values);
}

double EqualityTally::relative() const {
  if (values == 0) return 0;
  if (std::isnan(square_difference)) return std::numeric_limits<double>::infinity();
  const double n = static_cast<double>(values);
  return std::sqrt(square_difference / n) / std::max(std::sqrt(square_want / n), 1e-6);
}

int64_t DifferingRows(std::span<const int64_t> want, std::span<const int64_t> got, int64_t cols,
                      std::span<const float> gap) {
  DI_CHECK(want.size() == got.size()) << want.size() << " and " << got.size() << " values";
  const size_t n = static_cast<size_t>(cols);
  int64_t differing = 0;
  for (size_t row = 0; row * n < want.size(); ++row) {
    if (!gap.empty() && gap[row] <= kSelectionGap) continue;
    std::vector<int64_t> a(want.begin() + static_cast<int64_t>(row * n),
                           want.begin() + static_cast<int64_t>((row + 1) * n));
    std::vector<int64_t> b(got.begin() + static_cast<int64_t>(row * n),
                           got.begin() + static_cast<int64_t>((row + 1) * n));
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    differing += a != b;
  }
  return differing;
}

}  // namespace deepinfer
