#include "config/shape_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace deepinfer {
namespace {

struct Tally {
  int64_t tensors = 0, bytes = 0;
  bool operator==(const Tally&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Tally& t) {
  return out << t.tensors << " tensors " << t.bytes << " bytes";
}

std::vector<TensorSpec> Released() {
  return ShapeTable(ModelConfig::Load(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json"));
}

template <class Predicate>
Tally Sum(const std::vector<TensorSpec>& table, Predicate wanted) {
  Tally sum;
  for (const TensorSpec& t : table) {
    if (!wanted(t)) continue;
    ++sum.tensors;
    sum.bytes += t.bytes();
  }
  return sum;
}

bool Contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// The numbers below are those published for the release (spec 02 sections 1.1 to 1.3).

TEST(ShapeTable, ReleasedTotals) {
  const auto table = Released();
  EXPECT_EQ(Sum(table, [](const TensorSpec&) { return true; }), (Tally{96085, 510286023000}));
  const std::map<std::string_view, Tally> dtypes = {{"I8", {47232, 278585671680}},
                                                    {"F8_E4M3", {357, 204015223296}},
                                                    {"F8_E8M0", {47589, 23563015184}},
                                                    {"BF16", {520, 3952883712}},
                                                    {"F32", {387, 169229128}}};
  for (const auto& [dtype, expected] : dtypes) {
    EXPECT_EQ(Sum(table, [&](const TensorSpec& t) { return t.dtype == dtype; }), expected) << dtype;
  }
}

TEST(ShapeTable, ReleasedParts) {
  const auto table = Released();
  const auto part = [&](Part p) {
    return Sum(table, [p](const TensorSpec& t) { return t.part == p; });
  };
  EXPECT_EQ(Sum(table, [](const TensorSpec& t) { return Contains(t.name, ".experts."); }),
            (Tally{94464, 295997276160}));
  EXPECT_EQ(part(Part::kExperts), (Tally{40 * 384 * 6, 288777830400}));
  EXPECT_EQ(part(Part::kEngram), (Tally{12, 203073076240}));
  EXPECT_EQ(part(Part::kMtp), (Tally{2401, 7932874632}));
  EXPECT_EQ(part(Part::kVision), (Tally{266, 970536960}));
  EXPECT_EQ(part(Part::kGlobal), (Tally{3, int64_t{1323827200} + 1323837440}));
  EXPECT_EQ(
      Sum(table, [](const TensorSpec& t) { return Contains(t.name, ".engram.embed."); }).bytes,
      202758032400);
}

TEST(ShapeTable, ReleasedLayers) {
  const auto table = Released();
  for (int layer = 0; layer < 40; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const Tally sum = Sum(table, [&](const TensorSpec& t) {
      return t.name.starts_with(prefix) && t.part != Part::kEngram;
    });
    Tally expected{2334, 7389500888};
    if (layer == 2 || layer == 8 || layer == 14) expected = {2342, 7405694680};
    if (layer == 20) expected = {2341, 7400451800};
    if (layer >= 24 && layer % 4 == 0) expected = {2337, 7395076568};
    EXPECT_EQ(sum, expected) << layer;
  }
  const Tally stages[] = {{801, 2652643800}, {798, 2573913560}, {802, 2706317272}};
  for (int m = 0; m < 3; ++m) {
    const std::string prefix = "mtp." + std::to_string(m) + ".";
    EXPECT_EQ(Sum(table, [&](const TensorSpec& t) { return t.name.starts_with(prefix); }),
              stages[m])
        << m;
  }
}

TEST(ShapeTable, ReleasedShapes) {
  std::map<std::string, const TensorSpec*> by_name;
  const auto table = Released();
  for (const TensorSpec& t : table)
    EXPECT_TRUE(by_name.emplace(t.name, &t).second) << t.name << " appears twice";
  const struct {
    const char* name;
    const char* dtype;
    std::vector<int64_t> shape;
  } expected[] = {{"layers.39.attn.wo_a.scale", "F8_E8M0", {256, 128}},
                  {"layers.0.ffn.experts.383.w2.weight", "I8", {5120, 1152}},
                  {"layers.0.ffn.experts.0.w1.scale", "F8_E8M0", {2304, 160}},
                  {"layers.14.engram.embed.weight", "F8_E4M3", {384016682, 256}},
                  {"layers.14.engram.embed.scale", "F8_E8M0", {384016682, 8}},
                  {"layers.1.engram.wkv.weight", "F8_E4M3", {25600, 6144}},
                  {"layers.36.attn.indexer.wq_b.scale", "F8_E8M0", {128, 40}},
                  {"layers.7.hc_ffn_fn", "F32", {24, 20480}},
                  {"layers.7.hc_attn_scale", "F32", {3}},
                  {"layers.20.attn.compressor.wkv.weight", "BF16", {512, 5120}},
                  {"mtp.0.main_proj.weight", "F8_E4M3", {5120, 15360}},
                  {"mtp.2.confidence_head.proj.weight", "BF16", {1, 5376}},
                  {"mtp.2.markov_head.head.weight", "BF16", {129280, 256}},
                  {"aligner.w1.weight", "BF16", {5120, 9216}},
                  {"vision.patch_embed.proj.weight", "BF16", {1024, 588}},
                  {"vision.blocks.31.mlp.w1.weight", "BF16", {5632, 1024}},
                  {"image_newline", "BF16", {5120}}};
  for (const auto& e : expected) {
    ASSERT_TRUE(by_name.contains(e.name)) << e.name;
    const TensorSpec& t = *by_name[e.name];
    EXPECT_EQ(t.dtype, e.dtype) << e.name;
    EXPECT_EQ(std::vector<int64_t>(t.dims().begin(), t.dims().end()), e.shape) << e.name;
  }
  for (const char* absent :
       {"layers.20.attn.compressor.wgate.weight", "layers.24.attn.indexer.wk.weight",
        "layers.3.attn.indexer.wq_b.weight", "mtp.1.main_proj.weight"}) {
    EXPECT_FALSE(by_name.contains(absent)) << absent;
  }
}

TEST(ShapeTable, OneDraftStageHoldsEntryAndExit) {
  ModelConfig c = ModelConfig::Load(DI_SOURCE_DIR "/models/demo/config.json");
  c.num_nextn_predict_layers = 1;
  std::set<std::string> names;
  for (const TensorSpec& t : ShapeTable(c)) names.insert(t.name);
  EXPECT_TRUE(names.contains("mtp.0.main_proj.weight"));
  EXPECT_TRUE(names.contains("mtp.0.markov_head.head.weight"));
  EXPECT_FALSE(names.contains("mtp.1.attn_norm.weight"));
}

}  // namespace
}  // namespace deepinfer
