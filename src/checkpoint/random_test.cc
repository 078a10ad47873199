#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/formats.h"
#include "checkpoint/checkpoint.h"
#include "config/synthetic.h"

namespace deepinfer {
namespace {

ModelConfig SmallConfig(int64_t layers) {
  return SyntheticConfig({.layers = layers, .experts = 6, .vocab = 256, .engram = 64, .seed = 1});
}

uint64_t Digest(const Checkpoint& checkpoint) {
  uint64_t sum = 0;
  for (const StoredTensor& t : checkpoint.tensors()) {
    for (int64_t i = 0; i + 8 <= t.bytes; i += 8) {
      uint64_t word;
      std::memcpy(&word, t.data + i, 8);
      sum = sum * 31 + word;
    }
  }
  return sum;
}

TEST(RandomCheckpoint, SameBytesOnAnyNumberOfThreads) {
  const ModelConfig config = SmallConfig(1);
  const uint64_t one = Digest(Checkpoint::Random(config, 7, 1));
  EXPECT_EQ(one, Digest(Checkpoint::Random(config, 7, 3)));
  EXPECT_NE(one, Digest(Checkpoint::Random(config, 8, 1)));
}

// Ranks that make a part each: all bytes are those that one would make, and no more memory is
// taken.
TEST(RandomCheckpoint, PartsAreThoseOfTheWhole) {
  const ModelConfig config = SmallConfig(1);
  const Checkpoint whole = Checkpoint::Random(config, 7, 2);
  int64_t sum = 0;
  for (int64_t i = 0; i < 3; ++i) {
    const auto third = [i](int64_t bytes) { return BytesOf({{i, i + 1}, 3}, bytes); };
    const Checkpoint part =
        Checkpoint::Random(config, 7, 2, [&](const TensorSpec& t) { return third(t.bytes()); });
    sum += part.total_bytes();
    for (const StoredTensor& t : part.tensors()) {
      const Range own = third(t.bytes);
      ASSERT_EQ(std::memcmp(t.data + own.begin, whole.Find(t.name)->data + own.begin,
                            static_cast<size_t>(own.size())),
                0)
          << t.name;
    }
  }
  EXPECT_EQ(sum, whole.total_bytes());
}

// No NaN, and a row of any matrix times inputs around 1 gives results around 1.
TEST(RandomCheckpoint, ValuesArePlausible) {
  const ModelConfig config = SmallConfig(4);
  const Checkpoint checkpoint = Checkpoint::Random(config, 1, 2);
  for (const StoredTensor& t : checkpoint.tensors()) {
    if (t.dtype == "F8_E8M0" || t.shape.size() < 2) continue;
    const WeightView w = checkpoint.Get(t.name);
    double sum = 0;
    for (int64_t c = 0; c < w.cols; ++c) {
      float value = 0;
      const uint8_t* row = w.data;
      if (w.dtype == DType::kBf16) {
        uint16_t half;
        std::memcpy(&half, row + 2 * c, 2);
        value = Bf16ToFloat(half);
      } else if (w.dtype == DType::kF32) {
        std::memcpy(&value, row + 4 * c, 4);
      } else if (w.dtype == DType::kFp4Row32) {
        value = E2m1ToFloat((row[c / 2] >> (c % 2 * 4)) & 15) * Ue8m0ToFloat(w.scale[c / 32]);
      } else {
        value = E4m3ToFloat(row[c]) * Ue8m0ToFloat(w.scale[c / 32]);
      }
      ASSERT_TRUE(std::isfinite(value)) << t.name << " column " << c;
      sum += double{value} * double{value};
    }
    EXPECT_GT(sum, 0.2) << t.name;
    EXPECT_LT(sum, 5) << t.name;
  }
}

TEST(RandomCheckpoint, RefusesWhatMemoryCannotHold) {
  ModelConfig config = SmallConfig(1);
  config.vocab_size = int64_t{1} << 36;  // 1.4 PiB of embedding, head and transitions
  try {
    Checkpoint::Random(config, 1, 1);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_THAT(
        e.what(),
        testing::HasSubstr(
            "synthetic weights (fewer layers, stages, experts or words take less): needs 14"));
    EXPECT_THAT(e.what(), testing::HasSubstr("MiB are available"));
  }
}

}  // namespace
}  // namespace deepinfer
