#include "bench/kernel_bench.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/select.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "bench/kernel_cases.h"
#include "bench/timing.h"

namespace deepinfer {
namespace {

TEST(Samples, LowIsTheBestOfAFewAndThe5thPercentileOfMany) {
  Samples few, many;
  for (const double s : {3.0, 1.0, 2.0}) few.Add(s);
  EXPECT_EQ(few.Low(), 1.0);
  EXPECT_EQ(few.Median(), 2.0);
  for (int i = 100; i > 0; --i) many.Add(i);
  EXPECT_EQ(many.Low(), 6.0);
}

TEST(SlowestSeconds, IsTheTimeOfTheBusiestThread) {
  Team team(2);
  volatile double sink = 0;
  const auto spin = [&](int n) {
    for (int i = 0; i < n; ++i) sink = sink + 1;
  };
  const double both = SlowestSeconds(team, [&](Work) { spin(100000); });
  const double one = SlowestSeconds(team, [&](Work w) { spin(w.tid == 1 ? 3000000 : 1); });
  EXPECT_GT(one, both);
}

TEST(WeightPool, HoldsFiniteWeightsWithModerateScales) {
  Team team(2);
  WeightPool pool(1 << 20, team);
  for (const DType dtype : {DType::kFp8Tile32, DType::kFp4Row32, DType::kBf16, DType::kF32}) {
    const int64_t rows = 40, cols = 96;
    const std::vector<WeightView> views = pool.Matrices(dtype, rows, cols, 3);
    ASSERT_EQ(views.size(), 3u);
    for (const WeightView& w : views) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(w.data) % 512, 0u);
      EXPECT_GE(w.data, pool.base());
      EXPECT_LE(w.data + rows * w.row_stride_bytes, pool.base() + pool.bytes());
      std::vector<float> x(static_cast<size_t>(cols), 1.0f), y(static_cast<size_t>(rows));
      std::vector<float> scratch(4096);
      const int32_t one = 1;
      LinearArgs a = {};
      a.n_rows = &one, a.x = x.data(), a.x_stride = cols, a.w = w;
      a.y = y.data(), a.y_stride = rows, a.scratch = scratch.data(), a.scratch_stride = 4096;
      ReferenceKernels().linear(a, {0, 1});
      for (const float value : y) EXPECT_TRUE(std::isfinite(value) && value != 0);
      if (w.scale == nullptr) continue;
      for (int64_t i = 0; i < ScaleRows(&w) * cols / 32; ++i) {
        EXPECT_GE(w.scale[i], 119);
        EXPECT_LE(w.scale[i], 134);
      }
    }
  }
}

TEST(LimitMeter, MeasuresWhatEveryLevelHas) {
  Team team(2);
  WeightPool pool(1 << 20, team);
  for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
    LimitMeter meter(team, isa);
    EXPECT_GT(meter.ReadSeconds(pool.base(), pool.bytes()), 0) << isa;
    EXPECT_GT(meter.FmaRate(), 1e6) << isa;
    EXPECT_EQ(meter.Int8Rate() > 0, isa == "avx512" || isa == "amx") << isa;
    EXPECT_EQ(meter.TileRate() > 0, isa == "amx") << isa;
  }
}

TEST(KernelOp, RefusesAnUnknownNameByListingAll) {
  Team team(1);
  WeightPool pool(512, team);
  try {
    KernelOp("gate", pool);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("gate_up, down"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("'gate'"), std::string::npos) << e.what();
  }
}

// Every op runs at every level, its data lies where it says, and no call leaves the pool.
TEST(KernelOp, EveryCaseRunsInsideThePool) {
  Team team(2);
  WeightPool pool(4 << 20, team);
  for (const std::string& name : KernelOp::Names()) {
    const KernelOp op(name, pool, 8);
    for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
      const KernelCase c = op.Case(SelectKernels(DetectCpuFeatures(), isa), 2, 2);
      ASSERT_GE(c.calls, 1);
      if (op.has_weights()) {
        EXPECT_GE(c.data(0), pool.base());
        EXPECT_LE(c.data(c.calls - 1) + c.bytes, pool.base() + pool.bytes());
      }
      team.Run(
          [](void* opaque, int tid) {
            const KernelCase& k = *static_cast<const KernelCase*>(opaque);
            k.run(0, {tid, 2});
            k.run(k.calls - 1, {tid, 2});
          },
          const_cast<KernelCase*>(&c));
    }
  }
}

}  // namespace
}  // namespace deepinfer
