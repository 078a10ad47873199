#include "backend/cpu/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace deepinfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr CpuFeatures kEverything = {true, true, true, true, true, true,
                                     true, true, true, true, true, true};

std::string Refusal(const CpuFeatures& features, std::string_view level) {
  try {
    SelectKernels(features, level);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Select, MasksChooseEveryLowerLevel) {
  EXPECT_THAT(AvailableLevels(kEverything.Masked("generic")), ElementsAre("generic"));
  EXPECT_THAT(AvailableLevels(kEverything.Masked("avx2")), ElementsAre("generic", "avx2"));
  EXPECT_THAT(AvailableLevels(kEverything.Masked("avx512")),
              ElementsAre("generic", "avx2", "avx512"));
  EXPECT_THAT(AvailableLevels(kEverything), ElementsAre("generic", "avx2", "avx512", "amx"));
  EXPECT_STREQ(SelectKernels(kEverything, "auto").isa, "amx");
  EXPECT_STREQ(SelectKernels(kEverything.Masked("generic"), "auto").isa, "generic");
  EXPECT_STREQ(SelectKernels(kEverything.Masked("avx2"), "auto").isa, "avx2");
  EXPECT_STREQ(SelectKernels(kEverything.Masked("avx512"), "auto").isa, "avx512");
}

// Whatever single feature is missing, the level that needs it is not chosen.
TEST(Select, EveryMissingFeatureLowersTheLevel) {
  using F = CpuFeatures;
  for (bool F::*feature : {&F::avx2, &F::fma, &F::f16c}) {
    CpuFeatures features = kEverything;
    features.*feature = false;
    EXPECT_STREQ(SelectKernels(features, "auto").isa, "generic");
  }
  for (bool F::*feature :
       {&F::avx512f, &F::avx512bw, &F::avx512dq, &F::avx512vl, &F::avx512vnni, &F::avx512vbmi}) {
    CpuFeatures features = kEverything;
    features.*feature = false;
    EXPECT_STREQ(SelectKernels(features, "auto").isa, "avx2");
  }
  for (bool F::*feature : {&F::amx_tile, &F::amx_bf16, &F::amx_int8}) {
    CpuFeatures features = kEverything;
    features.*feature = false;
    EXPECT_STREQ(SelectKernels(features, "auto").isa, "avx512");
  }
}

// An operating system that refuses the permission for tile data leaves everything below AMX.
TEST(Select, RefusedAmxPermissionChoosesAvx512) {
  const CpuFeatures features = FeaturesFrom({.leaf1_ecx = ~0u,
                                             .leaf7_ebx = ~0u,
                                             .leaf7_ecx = ~0u,
                                             .leaf7_edx = ~0u,
                                             .xcr0 = 0x600e7,
                                             .amx_permitted = false});
  EXPECT_STREQ(SelectKernels(features, "auto").isa, "avx512");
}

TEST(Select, RefusalsNameLevelAndFeature) {
  CpuFeatures features = kEverything;
  features.avx512vbmi = false;
  EXPECT_THAT(Refusal(features, "avx512"),
              HasSubstr("avx512: this CPU or operating system does not offer AVX512_VBMI"));
  EXPECT_THAT(Refusal({}, "avx2"), HasSubstr("AVX2"));
  EXPECT_THAT(Refusal(kEverything, "sse"), HasSubstr("'sse'"));
  features = kEverything;
  features.amx_bf16 = false;
  EXPECT_THAT(Refusal(features, "amx"), HasSubstr("AMX-BF16"));
}

TEST(Select, ForcedLevelsAreTaken) {
  for (const char* level : {"generic", "avx2", "avx512", "amx"}) {
    EXPECT_STREQ(SelectKernels(kEverything, level).isa, level);
  }
}

// A table is a row of pointers; none may be null once merged.
TEST(Select, MergedTablesAreComplete) {
  for (const std::string& level : AvailableLevels(kEverything)) {
    const KernelTable& table = SelectKernels(kEverything, level);
    void* entries[sizeof(KernelTable) / sizeof(void*)];
    std::memcpy(entries, &table, sizeof entries);
    for (void* entry : entries) EXPECT_NE(entry, nullptr) << level;
  }
}

}  // namespace
}  // namespace deepinfer
