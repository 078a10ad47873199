#include "obs/bandwidth.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// Any machine that this runs on reads more than 0.1 GB/s, and none reads 100 TB/s.
TEST(BandwidthTest, IsPlausible) {
  for (int threads : {1, 2}) {
    const double bytes_per_s = MeasureReadBandwidth(threads);
    EXPECT_GT(bytes_per_s, 1e8);
    EXPECT_LT(bytes_per_s, 1e14);
  }
}

}  // namespace
}  // namespace deepinfer
