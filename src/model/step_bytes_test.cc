#include "model/step_bytes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "config/synthetic.h"
#include "model/forward.h"

namespace deepinfer {
namespace {

double ReleasedBytes(int64_t rows, int64_t context) {
  const ModelConfig c = ModelConfig::Parse(kReleasedConfig, "released");
  const KvShape shape = MakeKvShape(c, Numerics::Named("release"), 512);
  return StepBytes(c, shape)(rows, context);
}

// From spec 02: a plain layer is 7,389,500,888 bytes, of them 384 experts of 18,800,640; vectors
// are not counted.
TEST(StepBytes, OneRowOfTheRelease) {
  const int64_t experts = int64_t{40} * 6 * 18800640;
  const int64_t layer_vectors = 2 * (2 * 5120 + 1280 + 512) + 4 * (64 + 2 * 24 + 2 * 3 + 2 * 384);
  const int64_t plain = 7389500888 - int64_t{384} * 18800640 - layer_vectors;
  const int64_t source2 = 7405694680 - 7389500888 - 2 * (512 + 128);
  const int64_t source1 = 7400451800 - 7389500888 - 2 * (512 + 128);
  const int64_t index_source = 7395076568 - 7389500888;
  const int64_t engram = 2 * (int64_t{25600} * 6144 + 800 * 192 + 24 * (256 + 8));
  const int64_t head = int64_t{129280} * 5120 * 2;
  const int64_t dense = 40 * plain + 3 * source2 + source1 + 4 * index_source + engram + head;
  // The first token sees one window row a layer, nothing of ratio 2, one row of ratio 1 in each of
  // 20 layers and its key in 5.
  const int64_t caches = 40 * 528 + 20 * 288 + 5 * 68;
  EXPECT_EQ(ReleasedBytes(1, 0), static_cast<double>(experts + dense + 2 * 5120 + caches));
}

TEST(StepBytes, SixRowsTouch34Point4Experts) {
  // 384 (1 - (1 - 6 / 384)^6) = 34.63 experts a layer.
  const double more = (ReleasedBytes(6, 100) - ReleasedBytes(1, 100)) / 40 / 18800640;
  EXPECT_NEAR(more, 34.63 - 6, 0.1);
}

// Spec 05 section 8: three stages of 170 MB besides at most 15 experts each, the head, 66 MB of
// transitions a token; 78.6 MB and three rows' projections for the features.
TEST(StepBytes, DraftOfTheRelease) {
  const ModelConfig c = ModelConfig::Parse(kReleasedConfig, "released");
  const KvShape shape = MakeKvShape(c, Numerics::Named("release"), 512);
  const StepBytes bytes(c, shape);
  const double experts = 128 * (1 - std::pow(125.0 / 128, 5));  // 14.3
  const double fixed = 1.324e9 + 5 * 66.2e6 + 3 * experts * 18800640;
  EXPECT_NEAR((bytes.Draft(1) - fixed) / 3, 170e6, 5e6);
  EXPECT_NEAR(bytes.DraftRows(), 78.6e6 + 3 * 5120 * 512, 0.3e6);
}

TEST(StepBytes, NeighboursThatShareExperts) {
  const ModelConfig c = ModelConfig::Parse(kReleasedConfig, "released");
  const KvShape shape = MakeKvShape(c, Numerics::Named("release"), 512);
  const StepBytes bytes(c, shape);
  const auto experts = [&](int64_t rows, double overlap) {
    return (bytes.WithOverlap(rows, 100, overlap) - bytes(1, 100)) / 40 / 18800640 + 6;
  };
  EXPECT_NEAR(experts(1, 0.3), 6, 0.1);
  EXPECT_NEAR(experts(6, 0), 36, 0.1);
  EXPECT_NEAR(experts(6, 0.3), 27, 0.1);
}

// Only the first source of ratio 1 scores all keys; later ones score 16,384 candidates.
TEST(StepBytes, LongContext) {
  const double keys = 90000 * 68 + 3.0 * 45000 * 68;
  EXPECT_EQ(ReleasedBytes(1, 109999) - ReleasedBytes(1, 19999), keys);
}

}  // namespace
}  // namespace deepinfer
