// What the kernel tests share: the tables of this CPU, calling a kernel as several threads would,
// random data and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/guarded_buffer.h"
#include "backend/cpu/select.h"
#include "base/formats.h"
#include "ops/kernel_table.h"

namespace deepinfer {

// The tables above the scalar reference that this CPU runs; says which it cannot.
inline std::vector<const KernelTable*> VectorTables() {
  std::vector<const KernelTable*> tables;
  std::string names;
  for (const std::string& level : AvailableLevels(DetectCpuFeatures())) {
    names += " " + level;
    if (level != "generic") tables.push_back(&SelectKernels(DetectCpuFeatures(), level));
  }
  std::printf("levels of this CPU:%s\n", names.c_str());
  return tables;
}

// Runs all parts of the kernel one after the other; the last first, since their order must not
// matter.
template <class Args>
void RunParts(KernelOf<Args> kernel, const Args& args, int parts) {
  for (int tid = parts - 1; tid >= 0; --tid) kernel(args, Work{tid, parts});
}

inline std::vector<int32_t> RowCounts() {
  std::vector<int32_t> counts;
  for (int32_t n = 0; n <= 17; ++n) counts.push_back(n);
  for (int32_t n : {31, 32, 33, 63, 64, 65, 128, 300}) counts.push_back(n);
  return counts;
}

// Floats that end at a guard page.
class GuardedFloats {
 public:
  explicit GuardedFloats(const std::vector<float>& values) : buffer_(values) {}
  float* data() const { return buffer_.floats(); }
  std::vector<float> values() const { return {data(), data() + buffer_.size_bytes() / 4}; }

 private:
  GuardedBuffer buffer_;
};

constexpr uint32_t kSeed = 20240607;  // of every random test

class Random {
 public:
  explicit Random(uint32_t seed = kSeed) : engine_(seed) {}

  int Int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  float Normal() { return std::normal_distribution<float>()(engine_); }
  std::vector<float> Normals(int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = Normal();
    return x;
  }
  // Normal numbers on the bf16 grid.
  std::vector<float> Bf16s(int64_t n) {
    std::vector<float> x = Normals(n);
    for (float& v : x) v = RoundBf16(v);
    return x;
  }
  // Whole numbers in [-limit, limit]: their sums of products are exact in any order.
  std::vector<float> Integers(int64_t n, int limit) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = static_cast<float>(Int(-limit, limit));
    return x;
  }

 private:
  std::mt19937 engine_;
};

// The nearest bf16 values, as stored.
inline std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float v : values) bits.push_back(FloatToBf16(v));
  return bits;
}

inline bool SameBits(float a, float b) { return std::memcmp(&a, &b, 4) == 0; }

// Bit for bit, except that one NaN is as good as another.
inline void ExpectSame(const std::vector<float>& expected, const std::vector<float>& found,
                       const std::string& what) {
  ASSERT_EQ(expected.size(), found.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    ASSERT_TRUE(SameBits(expected[i], found[i]))
        << what << ": value " << i << " is " << found[i] << ", expected " << expected[i];
  }
}

// |found - expected| <= relative * |expected| + absolute.
inline void ExpectNear(const std::vector<float>& expected, const std::vector<float>& found,
                       float relative, float absolute, const std::string& what) {
  ASSERT_EQ(expected.size(), found.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::fabs(found[i] - expected[i]), relative * std::fabs(expected[i]) + absolute)
        << what << ": value " << i << " is " << found[i] << ", expected " << expected[i];
  }
}

}  // namespace deepinfer
