#include "sampler/row.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace deepinfer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 16;

}  // namespace

// Sixteen lanes, which the compiler can make vectors of.
float LargestOf(std::span<const float> values) {
  float best[kLanes];
  std::fill_n(best, kLanes, -kInf);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    const float* v = values.data() + i;
    for (size_t j = 0; j < kLanes; ++j) best[j] = v[j] > best[j] ? v[j] : best[j];
  }
  for (; i < values.size(); ++i) best[0] = values[i] > best[0] ? values[i] : best[0];
  return *std::max_element(best, best + kLanes);
}

bool AllBelowInfinity(std::span<const float> values) {
  int32_t bad[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    const float* v = values.data() + i;
    for (size_t j = 0; j < kLanes; ++j) bad[j] |= v[j] < kInf ? 0 : 1;
  }
  for (; i < values.size(); ++i) bad[0] |= values[i] < kInf ? 0 : 1;
  return std::ranges::all_of(bad, [](int32_t b) { return b == 0; });
}

}  // namespace deepinfer
