#include "config/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/read_file.h"
#include "config/shape_table.h"

namespace deepinfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Synthetic, HoldsThePublishedConfig) {
  EXPECT_EQ(kReleasedConfig,
            ReadFile(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json", 1 << 20));
}

TEST(Synthetic, AllLayersAreTheReleasedModel) {
  const ModelConfig released = ModelConfig::Parse(kReleasedConfig, "released");
  const ModelConfig c = SyntheticConfig(
      {.layers = 40, .experts = 384, .vocab = 129280, .engram = 16000000, .seed = 1});
  EXPECT_EQ(c.compress_ratios, released.compress_ratios);
  EXPECT_EQ(c.kv_source_layer_ids, released.kv_source_layer_ids);
  EXPECT_EQ(c.index_source_layer_ids, released.index_source_layer_ids);
  EXPECT_EQ(c.candidate_source_layer_id, released.candidate_source_layer_id);
  EXPECT_EQ(c.engram_layer_ids, released.engram_layer_ids);
  EXPECT_EQ(c.engram_num_embeddings, released.engram_num_embeddings);
  EXPECT_EQ(c.engram_compressed_vocab_size, released.engram_compressed_vocab_size);
  EXPECT_EQ(c.num_nextn_predict_layers, released.num_nextn_predict_layers);
  EXPECT_EQ(c.dspark_n_routed_experts, released.dspark_n_routed_experts);
  EXPECT_EQ(c.dspark_noise_token_id, released.dspark_noise_token_id);
  EXPECT_EQ(c.dspark_target_layer_ids, released.dspark_target_layer_ids);
  std::map<std::string, TensorSpec> specs;
  for (const TensorSpec& spec : ShapeTable(released)) specs.emplace(spec.name, spec);
  for (const TensorSpec& spec : ShapeTable(c)) {
    ASSERT_TRUE(specs.contains(spec.name)) << spec.name;
    EXPECT_EQ(spec.shape, specs.at(spec.name).shape) << spec.name;
  }
}

// Every number of layers is a config that loads, with the kinds the header promises.
TEST(Synthetic, EveryCutHasItsKinds) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    const ModelConfig c = SyntheticConfig({.layers = layers, .experts = 6, .vocab = 256});
    std::map<std::string, int> kinds;
    for (int l = 0; l < layers; ++l) ++kinds[LayerKind(c, l)];
    EXPECT_EQ(kinds["ratio 1 source"], 1) << layers;
    EXPECT_EQ(kinds["ratio 2 source"] + kinds["ratio 2 source + engram"] > 0, layers >= 2);
    EXPECT_EQ(kinds["window"] + kinds["window + engram"] > 0, layers >= 3) << layers;
    EXPECT_EQ(c.engram_layer_ids.empty(), layers < 4) << layers;
    EXPECT_GE(c.num_nextn_predict_layers, 1) << layers;
    EXPECT_EQ(LayerKind(c, static_cast<int>(layers)), "draft stage");
  }
}

TEST(Synthetic, DraftStages) {
  const ModelConfig c = SyntheticConfig({.layers = 2, .experts = 48, .vocab = 512});
  EXPECT_EQ(c.num_nextn_predict_layers, 1);
  EXPECT_EQ(c.dspark_n_routed_experts, 16);
  EXPECT_EQ(c.dspark_noise_token_id, 511);
  EXPECT_THAT(c.dspark_target_layer_ids, ElementsAre(0, 1));
  EXPECT_EQ(SyntheticConfig({.stages = 0}).num_nextn_predict_layers, 0);
  EXPECT_EQ(SyntheticConfig({.experts = 6, .stages = 2}).dspark_n_routed_experts, 3);
}

TEST(Synthetic, EightLayers) {
  const LayerCut cut = CutLayers(8);
  EXPECT_THAT(cut.ratios, ElementsAre(0, 2, 2, 2, 1, 1, 1, 1));
  EXPECT_THAT(cut.kv_sources, ElementsAre(1, 4));
  EXPECT_THAT(cut.index_sources, ElementsAre(1, 4));
  EXPECT_THAT(cut.engram, ElementsAre(0));
}

TEST(Synthetic, ParsesItsList) {
  const SyntheticModel m = SyntheticModel::Parse("layers=8,vocab=512,seed=18446744073709551615");
  EXPECT_EQ(m.layers, 8);
  EXPECT_EQ(m.experts, 64);
  EXPECT_EQ(m.vocab, 512);
  EXPECT_EQ(m.seed, UINT64_MAX);
  EXPECT_EQ(SyntheticModel::Parse("").layers, 4);
  EXPECT_EQ(SyntheticModel::Parse("stages=2").stages, 2);
}

TEST(Synthetic, RefusesByName) {
  const auto refusal = [](const char* text) -> std::string {
    try {
      SyntheticModel::Parse(text);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("layers=0"),
              HasSubstr("--synthetic layers: expected an integer from 1 to 40"));
  EXPECT_THAT(refusal("experts=5"), HasSubstr("experts"));
  EXPECT_THAT(refusal("stages=4"), HasSubstr("stages"));
  EXPECT_THAT(refusal("layer=4"), HasSubstr("found \"layer=4\""));
  EXPECT_THAT(refusal("layers"), HasSubstr("found \"layers\""));
  EXPECT_THAT(refusal("layers=4x"), HasSubstr("found \"layers=4x\""));
  EXPECT_THAT(refusal("seed=-1"), HasSubstr("found \"seed=-1\""));
}

}  // namespace
}  // namespace deepinfer
