#include "sampler/row.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace deepinfer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(LargestOf, PassesOverNan) {
  std::vector<float> values(100, kNan);
  EXPECT_EQ(LargestOf(values), -kInf);
  EXPECT_EQ(LargestOf({}), -kInf);
  for (size_t at : {size_t{0}, size_t{31}, size_t{96}, size_t{99}}) {
    values.assign(100, -5);
    values[at] = -2;
    values[50] = kNan;
    EXPECT_EQ(LargestOf(values), -2);
  }
}

TEST(AllBelowInfinity, SeesABadValueAtEveryPlace) {
  for (size_t size : {size_t{1}, size_t{15}, size_t{16}, size_t{37}}) {
    std::vector<float> values(size, -kInf);
    EXPECT_TRUE(AllBelowInfinity(values));
    for (float bad : {kInf, kNan, -kNan}) {
      for (size_t at = 0; at < size; ++at) {
        values.assign(size, 3);
        values[at] = bad;
        EXPECT_FALSE(AllBelowInfinity(values)) << size << " values, " << bad << " at " << at;
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
