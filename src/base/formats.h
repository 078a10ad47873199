// Scalar number formats of the checkpoint and of the model's rounding points (spec 02 section 4,
// spec 03 section 1). bf16, e4m3fn, e2m1 and ue8m0, each as the plain integer that is stored. This
// is the code that the vector kernels are tested against; it is written to be read, not to be fast.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace deepinfer {

// ---- bf16: the upper half of a float ----

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest, ties to even. NaN stays NaN (quiet), infinities stay.
inline uint16_t FloatToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float RoundBf16(float x) { return Bf16ToFloat(FloatToBf16(x)); }

// ---- ue8m0: a power of two, 2^(byte - 127); 255 is NaN ----

inline float Ue8m0ToFloat(uint8_t byte) {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  return byte == 0 ? 0x1p-127f : std::bit_cast<float>(uint32_t{byte} << 23);
}

// ---- e4m3fn: 1-4-3, bias 7, no infinities, 0x7f and 0xff are NaN, largest 448 ----

constexpr float DecodeE4m3(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  float magnitude = exponent == 0 ? static_cast<float>(mantissa) : static_cast<float>(8 + mantissa);
  for (int e = exponent == 0 ? 1 : exponent; e < 10; ++e) magnitude /= 2;
  for (int e = exponent; e > 10; --e) magnitude *= 2;
  return (code & 0x80) ? -magnitude : magnitude;
}

inline constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    values[static_cast<size_t>(code)] = DecodeE4m3(static_cast<uint8_t>(code));
  }
  return values;
}();

inline float E4m3ToFloat(uint8_t code) { return kE4m3Values[code]; }

// Round to nearest even; magnitudes above 448 and infinities saturate, NaN gives 0x7f.
inline uint8_t FloatToE4m3(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return 0x7f;
  const float magnitude = std::fabs(x);
  if (magnitude >= 448.0f) return sign | 0x7e;
  if (magnitude == 0.0f) return sign;
  // Grid spacing: 2^-9 below 2^-6 (subnormals), else 2^(exponent - 3).
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent-1), 2^exponent)
  const int unit = exponent - 1 < -6 ? -9 : exponent - 4;
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
  if (unit == -9)
    return sign | static_cast<uint8_t>(steps);  // 8 steps is the first normal, code 0x08
  // steps is 8..16; 16 carries into the next binade, which the addition does by itself.
  return sign | static_cast<uint8_t>(((exponent - 1 + 7) << 3) + (steps - 8));
}

// ---- e2m1: 0 0.5 1 1.5 2 3 4 6, bit 3 = sign ----

inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

inline float E2m1ToFloat(uint8_t code) { return kE2m1Values[code & 15]; }

// Nearest value, ties to the even code, saturating at 6. NaN gives 6 with its sign (the format has
// no NaN).
inline uint8_t FloatToE2m1(float x) {
  const uint8_t sign = std::signbit(x) ? 8 : 0;
  const float m = std::fabs(x);
  if (m <= 0.25f) return sign;
  if (m < 0.75f) return sign | 1;
  if (m <= 1.25f) return sign | 2;
  if (m < 1.75f) return sign | 3;
  if (m <= 2.5f) return sign | 4;
  if (m < 3.5f) return sign | 5;
  if (m <= 5.0f) return sign | 6;
  return sign | 7;
}

// ---- power-of-two scales ----

// Exponent e of the smallest power of two >= x, for positive normal x.
inline int CeilLog2(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<int>(bits >> 23) - 127 + ((bits & 0x7fffffu) != 0 ? 1 : 0);
}

}  // namespace deepinfer
