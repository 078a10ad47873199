// The scalar formats against what their definitions say: every code, and every bf16 value to its
// nearest code.
#include "base/formats.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// The code of the finite value nearest to |x|, found by trying all; ties go to the even code. Codes
// ascend with value.
int NearestCode(float magnitude, int n_codes, float (*value)(uint8_t)) {
  int best = 0;
  for (int code = 1; code < n_codes; ++code) {
    const double old_distance = std::fabs(double{magnitude} - value(static_cast<uint8_t>(best)));
    const double distance = std::fabs(double{magnitude} - value(static_cast<uint8_t>(code)));
    if (distance < old_distance || (distance == old_distance && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(Formats, E4m3ValuesFollowTheDefinition) {
  // Published corners of e4m3fn: smallest subnormal, largest subnormal, smallest normal, one,
  // largest.
  EXPECT_EQ(E4m3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(E4m3ToFloat(0x07), 0x7p-9f);
  EXPECT_EQ(E4m3ToFloat(0x08), 0x1p-6f);
  EXPECT_EQ(E4m3ToFloat(0x38), 1.0f);
  EXPECT_EQ(E4m3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(E4m3ToFloat(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(E4m3ToFloat(0x7f)) && std::isnan(E4m3ToFloat(0xff)));
  EXPECT_TRUE(std::signbit(E4m3ToFloat(0x80)));
  for (int code = 1; code < 0x7f; ++code) {
    EXPECT_LT(E4m3ToFloat(static_cast<uint8_t>(code - 1)), E4m3ToFloat(static_cast<uint8_t>(code)));
    EXPECT_EQ(E4m3ToFloat(static_cast<uint8_t>(code)),
              -E4m3ToFloat(static_cast<uint8_t>(code | 0x80)));
  }
}

TEST(Formats, E4m3CodesComeBack) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    EXPECT_EQ(FloatToE4m3(E4m3ToFloat(static_cast<uint8_t>(code))), code);
  }
}

TEST(Formats, EveryBf16RoundsToTheNearestE4m3AndE2m1) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = Bf16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(x)) continue;
    const int sign = std::signbit(x) ? 1 : 0;
    const float magnitude = std::fmin(std::fabs(x), 1e6f);
    ASSERT_EQ(FloatToE4m3(x), NearestCode(magnitude, 0x7f, E4m3ToFloat) | sign << 7) << x;
    ASSERT_EQ(FloatToE2m1(x), NearestCode(magnitude, 8, E2m1ToFloat) | sign << 3) << x;
  }
  EXPECT_EQ(FloatToE4m3(NAN), 0x7f);
}

TEST(Formats, Bf16RoundsToEvenAndKeepsNan) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = Bf16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(x)) continue;
    EXPECT_EQ(FloatToBf16(x), bits);
  }
  EXPECT_EQ(RoundBf16(0x1.01p0f), 1.0f);       // a tie between 1 and 1 + 2^-7 goes to the even 1
  EXPECT_EQ(RoundBf16(0x1.03p0f), 0x1.04p0f);  // a tie between 1 + 2^-7 and 1 + 2^-6
  EXPECT_EQ(RoundBf16(0x1.010002p0f), 0x1.02p0f);
  EXPECT_TRUE(std::isinf(RoundBf16(0x1.ffp127f)));
  const uint32_t nan_with_low_bits_only = 0x7f800001;
  EXPECT_TRUE(std::isnan(RoundBf16(std::bit_cast<float>(nan_with_low_bits_only))));
}

TEST(Formats, ScalesArePowersOfTwo) {
  EXPECT_EQ(Ue8m0ToFloat(0), 0x1p-127f);
  EXPECT_EQ(Ue8m0ToFloat(127), 1.0f);
  EXPECT_EQ(Ue8m0ToFloat(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(Ue8m0ToFloat(255)));
  EXPECT_EQ(CeilLog2(1.0f), 0);
  EXPECT_EQ(CeilLog2(0x1.000002p0f), 1);
  EXPECT_EQ(CeilLog2(0x1p-20f), -20);
}

}  // namespace
}  // namespace deepinfer
