#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/formats.h"
#include "checkpoint/test_files.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadText;
using testing::Refusal;
using testing::TempDir;
using testing::TestTensor;
using testing::TestTensors;
using testing::WriteSparse;
using testing::WriteText;

const std::string kDemo = DI_SOURCE_DIR "/models/demo";
constexpr char kIndex[] = "/model.safetensors.index.json";
constexpr char kShard2[] = "/model-00002-of-00003.safetensors";

std::string Tiny(const std::string& name) {
  return DI_SOURCE_DIR "/build/testdata/checkpoints/" + name;
}

ModelConfig ConfigOf(const std::string& dir) { return ModelConfig::Load(dir + "/config.json"); }

// A copy of the demo checkpoint that a test may damage.
class DemoCopy {
 public:
  DemoCopy() {
    for (const auto& file : fs::directory_iterator(kDemo)) fs::copy(file.path(), dir_.path());
  }
  std::string path(const char* file = "") const { return dir_.path() + file; }
  std::string Refused() const {
    return Refusal([this] { Checkpoint::Open(dir_.path(), ConfigOf(kDemo)); });
  }
  // Replaces the first `from` of a file by `to`, which must be as long.
  void Replace(const char* file, const std::string& from, const std::string& to) const {
    std::string text = ReadText(path(file));
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    WriteText(path(file), text);
  }

 private:
  TempDir dir_;
};

// One file model.safetensors of holes for the smallest layout.
std::string RefusedLone(const std::vector<TestTensor>& tensors, const ModelConfig& config) {
  static const TempDir dir;
  WriteSparse(dir.path() + "/model.safetensors", tensors);
  return Refusal([&] { Checkpoint::Open(dir.path(), config); });
}

TEST(Checkpoint, OpensTheSmallCheckpoints) {
  const struct {
    std::string dir;
    size_t tensors;
    int64_t bytes;
  } cases[] = {
      {kDemo, 1545, 13346528}, {Tiny("tiny"), 1545, 15928348}, {Tiny("tiny-odd"), 989, 6440247}};
  for (const auto& c : cases) {
    ASSERT_TRUE(fs::exists(c.dir))
        << c.dir << " is missing: run scripts/test.sh once to unpack the test data";
    const Checkpoint checkpoint = Checkpoint::Open(c.dir, ConfigOf(c.dir));
    EXPECT_EQ(checkpoint.tensors().size(), c.tensors);
    EXPECT_EQ(checkpoint.shards().size(), 3u);
    EXPECT_TRUE(checkpoint.unused().empty());
    EXPECT_EQ(checkpoint.total_bytes(), c.bytes) << c.dir;
  }
}

// What the system was told about the mapping around an address: "hg" (large pages), "nh" (none).
std::string MappingFlags(const uint8_t* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream file("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long begin, end;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      inside = begin <= wanted && wanted < end;
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

TEST(Checkpoint, LargePagesAreAskedForExceptForEngramTables) {
  if (!fs::exists("/sys/kernel/mm/transparent_hugepage")) return;  // nobody to ask
  const Checkpoint checkpoint = Checkpoint::Open(Tiny("tiny"), ConfigOf(Tiny("tiny")));
  int tables = 0;
  for (const StoredTensor& t : checkpoint.tensors()) {
    const bool table = t.name.find(".engram.embed.") != std::string::npos;
    tables += table;
    // Pages at the ends of a table hold ends of its neighbours.
    if (!table && t.bytes < 3 * 4096) continue;
    EXPECT_THAT(MappingFlags(t.data + t.bytes / 2), HasSubstr(table ? " nh" : " hg")) << t.name;
  }
  EXPECT_GT(tables, 0);
}

TEST(Checkpoint, ViewsCarryShapeDtypeAndStrides) {
  const Checkpoint checkpoint = Checkpoint::Open(kDemo, ConfigOf(kDemo));
  const auto check = [&](const char* name, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                         int64_t scale_stride) {
    const WeightView w = checkpoint.Get(name);
    EXPECT_EQ(w.dtype, dtype) << name;
    EXPECT_EQ(w.rows, rows) << name;
    EXPECT_EQ(w.cols, cols) << name;
    EXPECT_EQ(w.row_stride_bytes, stride) << name;
    EXPECT_EQ(w.scale_stride_bytes, scale_stride) << name;
    EXPECT_EQ(w.scale_row0, 0) << name;
    EXPECT_EQ(w.data, checkpoint.Find(name)->data) << name;
    EXPECT_EQ(w.scale != nullptr, scale_stride != 0) << name;
  };
  check("embed.weight", DType::kBf16, 4096, 192, 384, 0);
  check("norm.weight", DType::kBf16, 1, 192, 384, 0);
  check("layers.0.hc_attn_fn", DType::kF32, 24, 768, 3072, 0);
  check("layers.0.attn.attn_sink", DType::kF32, 1, 8, 32, 0);
  check("layers.0.attn.wkv.weight", DType::kFp8Tile32, 64, 192, 192, 6);
  check("layers.3.ffn.experts.15.w2.weight", DType::kFp4Row32, 192, 64, 32, 2);
  check("layers.4.engram.embed.weight", DType::kFp8Row32, 12436, 32, 32, 1);
  EXPECT_EQ(checkpoint.Get("layers.0.attn.wkv.weight").scale,
            checkpoint.Find("layers.0.attn.wkv.scale")->data);
}

TEST(Checkpoint, RowsStartAtTheirScales) {
  const std::string dir = Tiny("tiny-odd");
  const Checkpoint checkpoint = Checkpoint::Open(dir, ConfigOf(dir));
  const WeightView tile =
      checkpoint.Get("layers.0.attn.wo_a.weight");  // [96, 288], groups of 24 rows
  for (int64_t begin = 0; begin < 96; begin += 24) {
    const WeightView group = checkpoint.Rows("layers.0.attn.wo_a.weight", begin, begin + 24);
    EXPECT_EQ(group.rows, 24);
    EXPECT_EQ(group.data, tile.data + begin * 288);
    EXPECT_EQ(group.scale, tile.scale + begin / 32 * 9);
    EXPECT_EQ(group.scale_row0, begin % 32);
  }
  const WeightView fp4 = checkpoint.Get("layers.0.ffn.experts.0.w1.weight");  // [64, 160]
  const WeightView half = checkpoint.Rows("layers.0.ffn.experts.0.w1.weight", 33, 64);
  EXPECT_EQ(half.data, fp4.data + 33 * 80);
  EXPECT_EQ(half.scale, fp4.scale + 33 * 5);
  EXPECT_EQ(half.scale_row0, 0);
  const WeightView plain = checkpoint.Rows("embed.weight", 516, 517);
  EXPECT_EQ(plain.data, checkpoint.Get("embed.weight").data + 516 * 320);
  EXPECT_EQ(checkpoint.Rows("embed.weight", 517, 517).rows, 0);
}

TEST(Checkpoint, WrongRequestsNameTheTensor) {
  const Checkpoint checkpoint = Checkpoint::Open(kDemo, ConfigOf(kDemo));
  EXPECT_THAT(Refusal([&] { checkpoint.Get("layers.99.attn_norm.weight"); }),
              HasSubstr("layers.99.attn_norm.weight:"));
  EXPECT_THAT(Refusal([&] { checkpoint.Get("layers.0.attn.wkv.scale"); }),
              HasSubstr("expected a weight"));
  EXPECT_THAT(Refusal([&] { checkpoint.Rows("embed.weight", 4000, 4097); }),
              HasSubstr("embed.weight: expected rows inside [0, 4096), found [4000, 4097)"));
  EXPECT_THAT(Refusal([&] { checkpoint.Rows("embed.weight", -1, 4); }), HasSubstr("found [-1, 4)"));
  EXPECT_THAT(Refusal([&] { checkpoint.Rows("embed.weight", 5, 4); }), HasSubstr("found [5, 4)"));
}

// Whatever tensor is missing, opening fails and names it: deleted, renamed, of another dtype or
// shape.
TEST(Checkpoint, EveryTensorIsNeeded) {
  const std::string dir = Tiny("tiny-odd");
  const ModelConfig config = ConfigOf(dir);
  const std::vector<TestTensor> whole = TestTensors(config);
  ASSERT_EQ(RefusedLone(whole, config), "accepted");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<TestTensor> changed = whole;
    changed[i].name += "x";
    EXPECT_THAT(RefusedLone(changed, config), HasSubstr(whole[i].name + ": expected "))
        << "renamed";
    if (i % 5 != 0) continue;
    changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(RefusedLone(changed, config), HasSubstr(whole[i].name + ": expected "))
        << "deleted";
  }
}

TEST(Checkpoint, ShapeAndDtypeAreCompared) {
  const std::string dir = Tiny("tiny-odd");
  const ModelConfig config = ConfigOf(dir);
  const std::vector<TestTensor> whole = TestTensors(config);
  for (size_t i = 0; i < whole.size(); i += 7) {
    std::vector<TestTensor> changed = whole;
    changed[i].shape[0] += 1;
    EXPECT_THAT(RefusedLone(changed, config), HasSubstr(whole[i].name + ": expected "))
        << "one row more";
    changed = whole;
    changed[i].shape.push_back(1);
    EXPECT_THAT(RefusedLone(changed, config), HasSubstr(whole[i].name + ": expected "))
        << "one dimension more";
    changed = whole;
    changed[i].dtype = whole[i].dtype == "BF16" ? "F16" : "F8_E5M2";
    EXPECT_THAT(RefusedLone(changed, config), HasSubstr(changed[i].dtype)) << "another dtype";
  }
  std::vector<TestTensor> changed = whole;
  changed[0].shape = {160, 517};
  EXPECT_THAT(RefusedLone(changed, config),
              HasSubstr("embed.weight: expected BF16 [517, 160], found BF16 [160, 517]"));
  changed[1].dtype = "F16";
  EXPECT_THAT(RefusedLone(changed, config), HasSubstr("(and 1 more tensors differ)"));
}

// Packed fp4 and scales stored as U8 give the same views; fp8 weights stored as U8 do not pass.
TEST(Checkpoint, PlainBytesLoadAlike) {
  const std::string dir = Tiny("tiny-odd");
  const ModelConfig config = ConfigOf(dir);
  std::vector<TestTensor> tensors = TestTensors(config);
  for (TestTensor& t : tensors) {
    if (t.dtype == "I8" || t.dtype == "F8_E8M0") t.dtype = "U8";
  }
  const TempDir out;
  WriteSparse(out.path() + "/model.safetensors", tensors);
  const Checkpoint bytes = Checkpoint::Open(out.path(), config),
                   typed = Checkpoint::Open(dir, config);
  for (const char* name : {"layers.0.ffn.experts.1.w2.weight", "layers.3.attn.wo_a.weight",
                           "layers.5.engram.embed.weight"}) {
    const WeightView a = bytes.Get(name), b = typed.Get(name);
    EXPECT_EQ(a.dtype, b.dtype) << name;
    EXPECT_EQ(a.cols, b.cols) << name;
    EXPECT_EQ(a.scale_stride_bytes, b.scale_stride_bytes) << name;
  }
  EXPECT_THAT(Refusal([&] { bytes.Get("layers.3.attn.wo_a.scale"); }),
              HasSubstr("expected a weight"));
  const auto fp8 = std::find_if(tensors.begin(), tensors.end(),
                                [](const TestTensor& t) { return t.dtype == "F8_E4M3"; });
  fp8->dtype = "U8";
  EXPECT_THAT(RefusedLone(tensors, config), HasSubstr(fp8->name + ": expected F8_E4M3"));
}

TEST(Checkpoint, UnusedTensorsAreReported) {
  const ModelConfig config = ConfigOf(Tiny("tiny-odd"));
  std::vector<TestTensor> tensors = TestTensors(config);
  tensors.insert(tensors.begin(), {"layers.0.ffn.gate.tid2eid", "I64", {3}});
  const TempDir dir;
  WriteSparse(dir.path() + "/model.safetensors", tensors);
  EXPECT_THAT(Checkpoint::Open(dir.path(), config).unused(),
              ElementsAre("layers.0.ffn.gate.tid2eid"));
}

TEST(Checkpoint, MissingAndDamagedFilesAreNamed) {
  {
    const DemoCopy copy;
    fs::remove(copy.path(kShard2));
    EXPECT_THAT(copy.Refused(), HasSubstr("/model-00002-of-00003.safetensors: cannot be opened"));
  }
  {
    const DemoCopy copy;
    fs::resize_file(copy.path(kShard2), 4530533);
    const std::string message = copy.Refused();
    EXPECT_THAT(message, HasSubstr("/model-00002-of-00003.safetensors: expected 4530534 bytes"));
    EXPECT_THAT(message, HasSubstr("found 4530533 bytes"));
  }
  {
    const DemoCopy copy;
    fs::resize_file(copy.path(kShard2), 0);
    EXPECT_THAT(copy.Refused(),
                HasSubstr("/model-00002-of-00003.safetensors: expected a safetensors file"));
  }
  {
    const DemoCopy copy;
    fs::copy_file(copy.path("/model-00001-of-00003.safetensors"), copy.path(kShard2),
                  fs::copy_options::overwrite_existing);
    EXPECT_THAT(copy.Refused(),
                HasSubstr("embed.weight: expected in one shard, found in model-00001"));
  }
  {
    const DemoCopy copy;
    fs::remove(copy.path(kIndex));
    EXPECT_THAT(
        copy.Refused(),
        HasSubstr("expected model.safetensors.index.json or model.safetensors, found neither"));
  }
  EXPECT_THAT(Refusal([] { Checkpoint::Open("/nowhere", ConfigOf(kDemo)); }),
              HasSubstr("/nowhere: expected a model dir"));
  EXPECT_THAT(Refusal([] { Checkpoint::Open(kDemo + kIndex, ConfigOf(kDemo)); }),
              HasSubstr("expected a directory"));
}

TEST(Checkpoint, IndexAndShardsMustAgree) {
  {
    const DemoCopy copy;  // the index names another shard
    copy.Replace(kIndex, R"("embed.weight": "model-00001)", R"("embed.weight": "model-00003)");
    EXPECT_THAT(copy.Refused(),
                HasSubstr("embed.weight: expected in model-00003-of-00003.safetensors by"));
  }
  {
    const DemoCopy copy;  // renamed in the index only
    copy.Replace(kIndex, R"("norm.weight")", R"("norn.weight")");
    EXPECT_THAT(copy.Refused(), HasSubstr("norn.weight: expected in model-0000"));
  }
  {
    const DemoCopy copy;  // renamed in a shard only
    copy.Replace(kShard2, R"("layers.5.attn.wkv.scale")", R"("layers.5.attn.wkx.scale")");
    EXPECT_THAT(copy.Refused(), HasSubstr("layers.5.attn.wkv.scale: expected in model-00002"));
  }
  {
    const DemoCopy copy;  // deleted from the index only
    copy.Replace(kIndex, R"("image_end": "model-00003-of-00003.safetensors",)",
                 std::string(50, ' '));
    EXPECT_THAT(copy.Refused(),
                HasSubstr("image_end: expected BF16 [192], found it in model-00003"));
  }
}

TEST(Checkpoint, OffsetsOutOfRangeAreNamed) {
  const DemoCopy copy;
  const std::string text = ReadText(copy.path(kShard2));
  const size_t at = text.find("\"data_offsets\": [", text.find("\"layers.5.attn.wkv.scale\"")) + 17;
  std::string damaged = text;
  damaged[at] = damaged[at] == '1' ? '2' : '1';  // begins elsewhere: length and shape disagree
  WriteText(copy.path(kShard2), damaged);
  EXPECT_THAT(copy.Refused(),
              HasSubstr("model-00002-of-00003.safetensors: layers.5.attn.wkv.scale: expected"));
}

// Row and shard offsets beyond 4 GiB: an Engram table of 6.4 GB, all holes but for three marked
// rows.
TEST(Checkpoint, ReadsBeyondFourGiB) {
  ModelConfig config = ConfigOf(Tiny("tiny-odd"));
  constexpr int64_t kRows = 200'000'000, kCols = 32, kMarked = 177'777'777;
  static_assert(kMarked * kCols > int64_t{1} << 32);
  config.engram_num_embeddings[0] = kRows;
  const TempDir dir;
  const std::string path = dir.path() + "/model.safetensors";
  const std::vector<TestTensor> tensors = TestTensors(config);
  const std::vector<int64_t> offsets = WriteSparse(path, tensors);
  const int fd = open(path.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  const auto mark = [&](const std::string& name, int64_t offset, const std::string& bytes) {
    const auto it = std::find_if(tensors.begin(), tensors.end(),
                                 [&](const TestTensor& t) { return t.name == name; });
    const off_t at = offsets[static_cast<size_t>(it - tensors.begin())] + offset;
    EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), at), static_cast<ssize_t>(bytes.size()));
  };
  const std::string row = "this row is thirty-two bytes ok.";
  mark("layers.0.engram.embed.weight", kMarked * kCols, row);
  mark("layers.0.engram.embed.scale", kMarked, "s");
  mark("layers.8.attn_norm.weight", 0, "behind the table");
  close(fd);

  const Checkpoint checkpoint = Checkpoint::Open(dir.path(), config);
  const WeightView table = checkpoint.Get("layers.0.engram.embed.weight");
  EXPECT_EQ(table.rows, kRows);
  const WeightView one = checkpoint.Rows("layers.0.engram.embed.weight", kMarked, kMarked + 1);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(one.data), 32), row);
  EXPECT_EQ(*one.scale, 's');
  EXPECT_EQ(one.data[-1], 0);
  EXPECT_EQ(one.data - table.data, kMarked * kCols);
  const WeightView behind = checkpoint.Get("layers.8.attn_norm.weight");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(behind.data), 16), "behind the table");
}

// The first bytes of two released tensors and the values they stand for (spec 02 section 4.6).
TEST(Checkpoint, ReleasedBytesDecode) {
  const ModelConfig config = ConfigOf(Tiny("tiny-odd"));
  const TempDir dir;
  const std::string path = dir.path() + "/model.safetensors";
  const std::vector<TestTensor> tensors = TestTensors(config);
  const std::vector<int64_t> offsets = WriteSparse(path, tensors);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto mark = [&](const std::string& name, const std::string& bytes) {
    const auto it = std::find_if(tensors.begin(), tensors.end(),
                                 [&](const TestTensor& t) { return t.name == name; });
    file.seekp(offsets[static_cast<size_t>(it - tensors.begin())]);
    file << bytes;
  };
  mark("layers.0.attn.wkv.weight", "\xd8\x71\xf2\x79\x70\x69\xf0\xe5");
  mark("layers.0.attn.wkv.scale", "\x73");
  mark("layers.0.ffn.experts.0.w1.weight", "\xa0\xa8\xec\x4a\xad\xaf\x42\xaa");
  mark("layers.0.ffn.experts.0.w1.scale", "\x78");
  file.close();

  const Checkpoint checkpoint = Checkpoint::Open(dir.path(), config);
  const WeightView fp8 = checkpoint.Get("layers.0.attn.wkv.weight");
  const float fp8_values[] = {-0.00390625f, 0.03515625f,  -0.0390625f, 0.0703125f,
                              0.03125f,     0.017578125f, -0.03125f,   -0.0126953125f};
  for (int k = 0; k < 8; ++k)
    EXPECT_EQ(E4m3ToFloat(fp8.data[k]) * Ue8m0ToFloat(fp8.scale[0]), fp8_values[k]) << k;
  const WeightView fp4 = checkpoint.Get("layers.0.ffn.experts.0.w1.weight");
  const float fp4_values[] = {0,           -0.0078125f, -0.0f,       -0.0078125f,
                              -0.015625f,  -0.03125f,   -0.0078125f, 0.015625f,
                              -0.0234375f, -0.0078125f, -0.046875f,  -0.0078125f,
                              0.0078125f,  0.015625f,   -0.0078125f, -0.0078125f};
  for (int k = 0; k < 16; ++k) {
    const uint8_t byte = fp4.data[k / 2];
    const int code = k % 2 == 0 ? byte & 15 : byte >> 4;
    EXPECT_EQ(E2m1ToFloat(static_cast<uint8_t>(code)) * Ue8m0ToFloat(fp4.scale[0]), fp4_values[k])
        << k;
  }
}

TEST(Checkpoint, ViewsOutliveAMove) {
  Checkpoint first = Checkpoint::Open(kDemo, ConfigOf(kDemo));
  const WeightView view = first.Get("norm.weight");
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.Get("norm.weight").data, view.data);
}

}  // namespace
}  // namespace deepinfer
