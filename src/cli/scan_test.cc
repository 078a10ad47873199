#include "cli/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/test_files.h"

namespace deepinfer {
namespace {

using ::testing::ElementsAre;
using testing::TempDir;
using testing::TestTensor;

// The demo layout full of zeros, with some bytes overwritten.
class ScanTest : public ::testing::Test {
 protected:
  ScanTest()
      : config_(ModelConfig::Load(DI_SOURCE_DIR "/models/demo/config.json")),
        tensors_(testing::TestTensors(config_)),
        path_(dir_.path() + "/model.safetensors"),
        offsets_(testing::WriteSparse(path_, tensors_)) {}

  void Mark(const std::string& name, int64_t offset, const std::string& bytes) {
    const auto it = std::find_if(tensors_.begin(), tensors_.end(),
                                 [&](const TestTensor& t) { return t.name == name; });
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offsets_[static_cast<size_t>(it - tensors_.begin())] + offset);
    file << bytes;
  }
  std::vector<std::string> Sentences() {
    const Checkpoint checkpoint = Checkpoint::Open(dir_.path(), config_);
    std::vector<std::string> list;
    int64_t done = 0;
    for (const ScanFinding& f : ScanCheckpoint(checkpoint, [&](int64_t bytes) { done = bytes; }))
      list.push_back(f.Sentence());
    EXPECT_EQ(done, checkpoint.total_bytes());
    return list;
  }

  ModelConfig config_;
  TempDir dir_;
  std::vector<TestTensor> tensors_;
  std::string path_;
  std::vector<int64_t> offsets_;
};

TEST_F(ScanTest, FindsEveryKindOfBadValue) {
  Mark("embed.weight", (4095 * 192 + 191) * 2, "\x80\x7f");  // bf16 infinity, the very last value
  Mark("layers.0.hc_attn_fn", (5 * 768 + 7) * 4, "\x01\x01\x80\xff");  // f32 NaN
  Mark("layers.0.attn.wkv.weight", 3 * 192 + 2,
       "\x7f\x7e\xff");  // two e4m3 NaN around the largest number
  Mark("layers.0.attn.wkv.scale", 6, "\xff");
  EXPECT_THAT(
      Sentences(),
      ElementsAre("embed.weight: 1 of 786432 values are not finite, the first at [4095, 191]",
                  "layers.0.attn.wkv.weight: 2 of 12288 values are not finite, the first at [3, 2]",
                  "layers.0.attn.wkv.scale: 1 of 12 values are not finite, the first at [1, 0]",
                  "layers.0.hc_attn_fn: 1 of 18432 values are not finite, the first at [5, 7]"));
}

TEST_F(ScanTest, LargestNumbersAreFine) {
  Mark("embed.weight", 0, "\x7f\x7f");                          // bf16 3.39e38
  Mark("layers.0.hc_attn_fn", 0, "\xff\xff\x7f\x7f");           // f32 3.4e38
  Mark("layers.0.attn.wkv.weight", 0, "\x7e\xfe");              // e4m3 +-448
  Mark("layers.0.attn.wkv.scale", 0, "\xfe");                   // 2^127
  Mark("layers.0.ffn.experts.0.w1.weight", 0, "\xff\x7f\x80");  // fp4 has no NaN
  EXPECT_THAT(Sentences(), ElementsAre());
}

}  // namespace
}  // namespace deepinfer
