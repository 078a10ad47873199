// Every golden set must be met on every path through the program. Chunks and thread counts change
// no bit at one level (same_bits_test), so each chunk runs with one thread count here, and the slow
// scalar level with one chunk size; scripts/golden.sh runs the full product.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/select.h"
#include "verify/verify.h"

namespace deepinfer {
namespace {

const std::string kData = std::string(DI_SOURCE_DIR) + "/build/testdata";

struct Path {
  int64_t chunk, threads;
};

std::vector<Path> PathsOf(const std::string& isa) {
#ifdef DI_SANITIZED
  return {{isa == "generic" ? 0 : 7, 1}};
#else
  if (isa == "generic") return {{7, 2}};
  return {{1, 1}, {3, 2}, {7, 1}, {64, 2}, {0, 1}};
#endif
}

struct Case {
  std::string checkpoint, numerics, isa;
};

bool Covered(const Case& c) {
  if (c.checkpoint == "tiny-window" && c.numerics == "trn2") return false;  // no such sets
#ifdef DI_SANITIZED
  if (c.isa == "generic") {
    return c.numerics == (c.checkpoint == "tiny"       ? "trn2"
                          : c.checkpoint == "tiny-odd" ? "release"
                                                       : "fp32");
  }
#endif
  return true;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
    for (const char* checkpoint : {"tiny", "tiny-odd", "tiny-window"}) {
      for (const char* numerics : {"fp32", "release", "trn2"}) {
        const Case c = {checkpoint, numerics, isa};
        if (Covered(c)) cases.push_back(c);
      }
    }
  }
  return cases;
}

class GoldenSetsTest : public ::testing::TestWithParam<Case> {};

TEST_P(GoldenSetsTest, HoldOnEveryPath) {
  for (const auto& [chunk, threads] : PathsOf(GetParam().isa)) {
    VerifyOptions options;
    options.engine.model = kData + "/checkpoints/" + GetParam().checkpoint;
    options.engine.numerics = GetParam().numerics;
    options.engine.isa = GetParam().isa;
    options.engine.threads = threads;
    options.golden_dir = kData + "/golden";
    options.chunk = chunk;
    const Report report = Verify(options);
    EXPECT_GE(report.sets(), 3);
    EXPECT_THAT(report.mismatches(), ::testing::IsEmpty())
        << "chunk " << chunk << ", threads " << threads << "\n"
        << report.Text();
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenSetsTest, ::testing::ValuesIn(Cases()), [](const auto& test) {
  std::string name = test.param.isa + "_" + test.param.checkpoint + "_" + test.param.numerics;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

ExecutorOptions TinyInFp32() {
  return {.engine = {.model = kData + "/checkpoints/tiny",
                     .max_model_len = 64,
                     .max_num_batched_tokens = 64,
                     .max_num_seqs = 1,
                     .threads = 1,
                     .numerics = "fp32"},
          .all_logits = true,
          .progress = {}};
}

// The checks find an engine that rounds less than the golden sets: every fed layer shows it.
TEST(GoldenChecksTest, FindMissingRoundings) {
  Executor executor(TinyInFp32());
  const GoldenSet set =
      LoadGoldenSet(kData + "/golden", "tiny", "release", "window", executor.config().vocab_size);
  Report report("release");
  report.CheckLayers(set, ReplayLayers(executor, set, 0));
  report.Finish();
  for (int layer = 0; layer < 10; ++layer) {
    EXPECT_THAT(
        report.mismatches(),
        ::testing::Contains(::testing::HasSubstr("fed layer " + std::to_string(layer) + ": ")));
  }
}

// A layer computes from the set's streams, not from what the layer before made. Layer 3 of `tiny`
// writes no cache that others read.
TEST(GoldenChecksTest, LayersAreFedFromTheSet) {
  Executor executor(TinyInFp32());
  GoldenSet set =
      LoadGoldenSet(kData + "/golden", "tiny", "fp32", "window", executor.config().vocab_size);
  const Replayed exact = ReplayLayers(executor, set, 5);
  for (float& v : set.arrays["streams.3"].values) v *= 2;
  const Replayed changed = ReplayLayers(executor, set, 5);
  EXPECT_EQ(exact.arrays.at("streams.3").values, changed.arrays.at("streams.3").values);
  EXPECT_NE(exact.arrays.at("streams.4").values, changed.arrays.at("streams.4").values);
  EXPECT_EQ(exact.arrays.at("streams.5").values, changed.arrays.at("streams.5").values);
}

}  // namespace
}  // namespace deepinfer
