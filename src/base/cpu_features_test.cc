#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "base/error.h"

namespace deepinfer {
namespace {

// A CPU with everything, under an operating system that saves everything.
CpuidAnswers Everything() {
  return {.leaf1_ecx = ~0u,
          .leaf7_ebx = ~0u,
          .leaf7_ecx = ~0u,
          .leaf7_edx = ~0u,
          .xcr0 = 0x600e7,
          .amx_permitted = true};
}

int Count(const CpuFeatures& f) {
  return f.avx2 + f.fma + f.f16c + f.avx512f + f.avx512bw + f.avx512dq + f.avx512vl + f.avx512vnni +
         f.avx512vbmi + f.amx_tile + f.amx_bf16 + f.amx_int8;
}

TEST(CpuFeatures, EveryFeatureNeedsItsOwnBit) {
  EXPECT_EQ(Count(FeaturesFrom(Everything())), 12);
  EXPECT_EQ(Count(FeaturesFrom({})), 0);
  // Bit positions from the Intel manual, volume 2, CPUID leaves 1 and 7.
  CpuidAnswers answers = Everything();
  answers.leaf7_ebx = 1u << 5;
  EXPECT_TRUE(FeaturesFrom(answers).avx2);
  EXPECT_FALSE(FeaturesFrom(answers).avx512f);
  answers.leaf7_ebx = ~(1u << 16);
  EXPECT_FALSE(FeaturesFrom(answers).avx512f);
  EXPECT_TRUE(FeaturesFrom(answers).avx512bw);
  answers.leaf7_ecx = 1u << 11;
  EXPECT_TRUE(FeaturesFrom(answers).avx512vnni);
  EXPECT_FALSE(FeaturesFrom(answers).avx512vbmi);
  answers.leaf7_edx = 1u << 24 | 1u << 22;
  EXPECT_TRUE(FeaturesFrom(answers).amx_bf16);
  EXPECT_FALSE(FeaturesFrom(answers).amx_int8);
}

TEST(CpuFeatures, RegistersThatTheSystemDoesNotSaveAreUnusable) {
  CpuidAnswers answers = Everything();
  answers.xcr0 = 0;
  EXPECT_EQ(Count(FeaturesFrom(answers)), 0);
  answers.xcr0 = 0x7;
  EXPECT_EQ(Count(FeaturesFrom(answers)), 3);
  answers.xcr0 = 0xe7;
  EXPECT_EQ(Count(FeaturesFrom(answers)), 9);
}

TEST(CpuFeatures, RefusedAmxPermissionLeavesAvx512) {
  CpuidAnswers answers = Everything();
  answers.amx_permitted = false;
  const CpuFeatures f = FeaturesFrom(answers);
  EXPECT_FALSE(f.amx_tile || f.amx_bf16 || f.amx_int8);
  EXPECT_TRUE(f.avx512f && f.avx512vbmi);
}

TEST(CpuFeatures, MasksCutAtTheNamedLevel) {
  const CpuFeatures all = FeaturesFrom(Everything());
  EXPECT_EQ(Count(all.Masked("amx")), 12);
  EXPECT_EQ(Count(all.Masked("avx512")), 9);
  EXPECT_EQ(Count(all.Masked("avx2")), 3);
  EXPECT_EQ(Count(all.Masked("generic")), 0);
  EXPECT_THROW(all.Masked("sse"), Error);
}

TEST(CpuFeatures, DetectionAgreesWithTheKernel) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; flags.empty() && std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) flags.insert(word);
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  const CpuFeatures& f = DetectCpuFeatures();
  EXPECT_EQ(f.avx2, flags.count("avx2") == 1);
  EXPECT_EQ(f.fma, flags.count("fma") == 1);
  EXPECT_EQ(f.f16c, flags.count("f16c") == 1);
  EXPECT_EQ(f.avx512f, flags.count("avx512f") == 1);
  EXPECT_EQ(f.avx512bw, flags.count("avx512bw") == 1);
  EXPECT_EQ(f.avx512dq, flags.count("avx512dq") == 1);
  EXPECT_EQ(f.avx512vl, flags.count("avx512vl") == 1);
  EXPECT_EQ(f.avx512vnni, flags.count("avx512_vnni") == 1);
  EXPECT_EQ(f.avx512vbmi, flags.count("avx512vbmi") == 1);
  EXPECT_LE(f.amx_tile, flags.count("amx_tile") == 1);  // the permission may be refused
}

}  // namespace
}  // namespace deepinfer
