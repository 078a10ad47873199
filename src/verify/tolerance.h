// How far an engine may be from a golden set (docs/numerics.md).
//
// fp32 proves structure: two correct implementations differ by summation order only, so every value
// is held to an absolute limit. In release and trn2 one bf16 bit that another summation order flips
// grows into full 4-bit and 8-bit rounding noise within a few layers; whole-model values are
// therefore held to a relative root mean square, and the sharp test is the single layer: fed with
// exact inputs, nearly all of its outputs must be equal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

enum class ValueKind { kLogits, kStreams, kOther };

// Of a golden array, by its name.
ValueKind KindOf(std::string_view array);

struct Tolerance {
  bool sharp;             // fp32
  double limits[3];       // by ValueKind: largest difference (fp32), else relative RMS
  double near_tie;        // a lead or a score gap of at most this decides nothing
  double argmax_share;    // of the positions with a lead above near_tie, equal at least
  double layer_equal;     // single layer: share of equal stream values, at least
  double layer_relative;  // single layer: relative RMS of the streams, below
};

// Selections and router choices may differ in fp32 where the golden's gap is not above this.
inline constexpr double kSelectionGap = 1e-4;

// mode: fp32, release or trn2.
Tolerance ToleranceOf(const std::string& mode);

// Difference of two arrays of equal size in the measure of a mode, and the limit it must not
// exceed. A NaN counts as infinitely far.
struct Distance {
  double difference, limit;
  bool exceeds() const { return !(difference <= limit); }
};
Distance Compare(const Tolerance& tolerance, ValueKind kind, std::span<const float> want,
                 std::span<const float> got);

// Sums for a relative root mean square and a share of equal values over several arrays.
struct EqualityTally {
  int64_t values = 0, equal = 0;
  double square_difference = 0, square_want = 0;

  void Add(std::span<const float> want, std::span<const float> got);
  double share() const;     // 1 when nothing was added
  double relative() const;  // infinite when a NaN was added
};

// Rows of an integer array (router choices, selections) that hold another set of numbers. gap
// [rows] or empty: rows whose gap is not above kSelectionGap may differ.
int64_t DifferingRows(std::span<const int64_t> want, std::span<const int64_t> got, int64_t cols,
                      std::span<const float> gap);

}  // namespace deepinfer
