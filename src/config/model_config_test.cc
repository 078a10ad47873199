#include "config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace deepinfer {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kReleased = DI_SOURCE_DIR "/tests/data/fixtures/config/config.json";
const std::string kDemo = DI_SOURCE_DIR "/models/demo/config.json";

std::string TinyPath(const std::string& name) {
  return DI_SOURCE_DIR "/build/testdata/checkpoints/" + name + "/config.json";
}

json Document(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

// The released config with one field of text_config changed.
json With(const char* key, const json& value) {
  json document = Document(kReleased);
  document["text_config"][key] = value;
  return document;
}

ModelConfig Parse(const json& document) {
  return ModelConfig::Parse(document.dump(), "config.json");
}

// The message of the Error that parsing throws, or "accepted".
std::string Refusal(const std::string& text) {
  try {
    ModelConfig::Parse(text, "config.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}
std::string Refusal(const json& document) { return Refusal(document.dump()); }

TEST(ModelConfig, ReadsTheReleasedFile) {
  const ModelConfig c = ModelConfig::Load(kReleased);
  EXPECT_EQ(c.vocab_size, 129280);
  EXPECT_EQ(c.hidden_size, 5120);
  EXPECT_EQ(c.num_hidden_layers, 40);
  EXPECT_EQ(c.num_attention_heads, 64);
  EXPECT_EQ(c.head_dim, 512);
  EXPECT_EQ(c.qk_rope_head_dim, 64);
  EXPECT_EQ(c.q_lora_rank, 1280);
  EXPECT_EQ(c.o_lora_rank, 1024);
  EXPECT_EQ(c.o_groups, 8);
  EXPECT_EQ(c.moe_intermediate_size, 2304);
  EXPECT_EQ(c.n_routed_experts, 384);
  EXPECT_EQ(c.num_experts_per_tok, 6);
  EXPECT_EQ(c.routed_scaling_factor, 1.5f);
  EXPECT_EQ(c.swiglu_limit, 10.0f);
  EXPECT_EQ(c.rms_norm_eps, 1e-20f);
  EXPECT_EQ(c.max_position_embeddings, 1048576);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.compress_rope_theta, 160000);
  ASSERT_TRUE(c.rope_scaling.has_value());
  EXPECT_EQ(c.rope_scaling->factor, 16);
  EXPECT_EQ(c.rope_scaling->beta_fast, 32);
  EXPECT_EQ(c.rope_scaling->beta_slow, 1);
  EXPECT_EQ(c.rope_scaling->original_max_position_embeddings, 65536);
  EXPECT_EQ(c.sliding_window, 128);
  EXPECT_EQ(c.index_n_heads, 32);
  EXPECT_EQ(c.index_head_dim, 128);
  EXPECT_EQ(c.index_topk, 512);
  EXPECT_EQ(c.candidate_topk_blocks, 2048);
  EXPECT_EQ(c.candidate_block_size, 8);
  EXPECT_EQ(c.hc_mult, 4);
  EXPECT_EQ(c.hc_sinkhorn_iters, 20);
  EXPECT_EQ(c.hc_eps, 1e-6f);
  EXPECT_THAT(c.engram_layer_ids, ElementsAre(1, 14));
  EXPECT_THAT(c.engram_num_embeddings, ElementsAre(384006168, 384016682));
  EXPECT_EQ(c.engram_columns(), 24);
  EXPECT_EQ(c.engram_vocab_size, 16000000);
  EXPECT_EQ(c.engram_compressed_vocab_size, 99092);
  EXPECT_EQ(c.engram_pad_token_id, 2);
  EXPECT_EQ(c.num_nextn_predict_layers, 3);
  EXPECT_EQ(c.dspark_block_size, 5);
  EXPECT_EQ(c.dspark_noise_token_id, 128799);
  EXPECT_THAT(c.dspark_target_layer_ids, ElementsAre(37, 38, 39));
  EXPECT_EQ(c.dspark_markov_rank, 256);
  EXPECT_EQ(c.dspark_n_routed_experts, 128);
  EXPECT_EQ(c.dspark_num_experts_per_tok, 3);
  EXPECT_THAT((std::vector<int>{c.bos_token_id, c.eos_token_id, c.pad_token_id, c.image_token_id}),
              ElementsAre(0, 1, 2, 129264));
  EXPECT_EQ(c.vision.num_hidden_layers, 32);
  EXPECT_EQ(c.vision.min_pixels, 295936);
  EXPECT_FALSE(c.vision.max_wh_ratio.has_value());
}

// The layer table of spec 01 section 1.3.
TEST(ModelConfig, OwnersOfTheReleasedLayers) {
  const ModelConfig c = ModelConfig::Load(kReleased);
  for (int layer = 0; layer < 40; ++layer) {
    const int kv = layer < 2 ? -1 : layer < 8 ? 2 : layer < 14 ? 8 : layer < 20 ? 14 : 20;
    const int topk = layer < 24 ? kv : layer / 4 * 4;
    EXPECT_EQ(c.kv_owner(layer), kv) << layer;
    EXPECT_EQ(c.topk_owner(layer), topk) << layer;
    EXPECT_EQ(c.is_kv_source(layer), layer == 2 || layer == 8 || layer == 14 || layer == 20)
        << layer;
    EXPECT_EQ(c.is_index_source(layer), c.is_kv_source(layer) || (layer >= 24 && layer % 4 == 0))
        << layer;
    EXPECT_EQ(c.uses_candidates(layer), layer >= 24 && layer % 4 == 0) << layer;
    EXPECT_EQ(c.engram_index(layer), layer == 1 ? 0 : layer == 14 ? 1 : -1) << layer;
  }
}

TEST(ModelConfig, OwnersAcrossAWindowOnlyLayer) {
  const ModelConfig c = ModelConfig::Load(TinyPath("tiny-odd"));
  std::vector<int> kv, topk;
  for (int layer = 0; layer < 9; ++layer)
    kv.push_back(c.kv_owner(layer)), topk.push_back(c.topk_owner(layer));
  EXPECT_THAT(kv, ElementsAre(-1, 1, 2, 2, -1, 2, 6, 6, 6));
  EXPECT_THAT(topk, ElementsAre(-1, 1, 2, 2, -1, 5, 6, 6, 8));
}

TEST(ModelConfig, LoadsTheSmallCheckpoints) {
  EXPECT_EQ(ModelConfig::Load(kDemo).vocab_size, 4096);
  for (const char* name : {"tiny", "tiny-odd", "tiny-window"}) {
    ASSERT_TRUE(std::filesystem::exists(TinyPath(name)))
        << "run scripts/test.sh once to unpack the test data";
    EXPECT_EQ(ModelConfig::Load(TinyPath(name)).vision.num_hidden_layers, 0) << name;
  }
}

TEST(ModelConfig, RatiosMayCoverTheDraftStages) {
  std::vector<int> ratios = Document(kReleased)["text_config"]["compress_ratios"];
  ASSERT_EQ(ratios.size(), 43u);
  EXPECT_EQ(Parse(With("compress_ratios", ratios)).compress_ratios.size(), 40u);
  ratios.resize(40);
  EXPECT_EQ(Parse(With("compress_ratios", ratios)).compress_ratios.size(), 40u);
  ratios.resize(39);
  EXPECT_THAT(
      Refusal(With("compress_ratios", ratios)),
      HasSubstr("compress_ratios: expected at least num_hidden_layers = 40 entries, found 39"));
}

TEST(ModelConfig, NullAndUnknownKeysCountAsAbsent) {
  json document = Document(kReleased);
  document["some_new_key"] = json::object({{"a", json::array({1, 2})}});
  document["architectures"] = nullptr;
  document["text_config"]["another"] = nullptr;
  document["text_config"]["rope_scaling"] = nullptr;
  document["text_config"]["attention_bias"] = nullptr;
  document["text_config"]["engram_layer_ids"] = nullptr;
  document["text_config"]["num_nextn_predict_layers"] = nullptr;
  document["text_config"]["candidate_source_layer_id"] = nullptr;
  document["vision_config"] = nullptr;
  document["image_token_id"] = nullptr;
  const ModelConfig c = Parse(document);
  EXPECT_FALSE(c.rope_scaling.has_value());
  EXPECT_TRUE(c.engram_layer_ids.empty());
  EXPECT_EQ(c.num_nextn_predict_layers, 0);
  EXPECT_EQ(c.candidate_source_layer_id, -1);
  EXPECT_EQ(c.vision.num_hidden_layers, 0);
  EXPECT_EQ(c.image_token_id, -1);
  EXPECT_FALSE(c.uses_candidates(24));
}

TEST(ModelConfig, MissingFieldIsNamed) {
  const json released = Document(kReleased)["text_config"];
  for (const char* key :
       {"vocab_size", "hidden_size", "compress_ratios", "swiglu_limit", "engram_head_dim",
        "hidden_act", "kv_source_layer_ids", "dspark_block_size", "index_topk", "rope_theta"}) {
    json document = Document(kReleased);
    document["text_config"].erase(key);
    EXPECT_EQ(Refusal(document),
              "config.json: text_config." + std::string(key) + ": expected a value, found none");
  }
}

struct BadField {
  const char* key;
  json value;
};

TEST(ModelConfig, WrongTextFieldIsNamed) {
  const BadField cases[] = {
      {"vocab_size", 0},
      {"vocab_size", -5},
      {"vocab_size", "many"},
      {"vocab_size", 129280.5},
      {"vocab_size", 18446744073709551615u},
      {"vocab_size", 1 << 30},
      {"hidden_size", 5121},
      {"hidden_size", 1 << 24},
      {"num_hidden_layers", 0},
      {"num_hidden_layers", 1000000},
      {"num_attention_heads", 1 << 30},
      {"num_key_value_heads", 2},
      {"head_dim", 500},
      {"qk_rope_head_dim", 63},
      {"qk_rope_head_dim", 514},
      {"qk_rope_head_dim", 130},
      {"q_lora_rank", 33},
      {"o_lora_rank", 1},
      {"o_groups", 7},
      {"o_groups", 0},
      {"moe_intermediate_size", 2305},
      {"n_routed_experts", 0},
      {"n_routed_experts", 1 << 20},
      {"n_shared_experts", 2},
      {"num_experts_per_tok", 0},
      {"num_experts_per_tok", 385},
      {"scoring_func", "sigmoid"},
      {"topk_method", "greedy"},
      {"norm_topk_prob", false},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"tie_word_embeddings", true},
      {"swiglu_limit", 0},
      {"rms_norm_eps", -1e-6},
      {"rms_norm_eps", "tiny"},
      {"max_position_embeddings", 0},
      {"rope_theta", 0},
      {"rope_scaling", "yarn"},
      {"sliding_window", 0},
      {"compress_ratios", json::array({0, 0, 3})},
      {"kv_source_layer_ids", json::array({2, 8, 14, 40})},
      {"kv_source_layer_ids", json::array({8, 2, 14, 20})},
      {"kv_source_layer_ids", json::array({2, 2, 14, 20})},
      {"kv_source_layer_ids", json::array({2, 8, 14, 21})},  // 21 is not an index source
      {"kv_source_layer_ids", json::array({8, 14, 20})},     // layers 2-7 have no source
      {"kv_source_layer_ids", json::array()},
      {"index_source_layer_ids", json::array({0, 2, 8, 14, 20, 24})},  // layer 0 has ratio 0
      {"index_head_dim", 100},
      {"index_head_dim", 32},  // narrower than the rotated part
      {"index_topk", 0},
      {"candidate_source_layer_id", 24},
      {"candidate_source_layer_id", 8},  // layer 14 selects in another cache
      {"candidate_topk_blocks", 64},     // 64 * 8 < 512 + 8
      {"hc_mult", 0},
      {"hc_mult", 9},
      {"hc_sinkhorn_iters", 0},
      {"engram_layer_ids", json::array({14, 1})},
      {"engram_num_embeddings", json::array({384006168})},
      {"engram_num_embeddings", json::array({384006168, 0})},
      {"engram_max_ngram_size", 1},
      {"engram_head_dim", 250},
      {"engram_compressed_vocab_size", 129281},
      {"engram_pad_token_id", 129280},
      {"dspark_noise_token_id", 129280},
      {"dspark_block_size", 0},
      {"dspark_target_layer_ids", json::array({38, 40})},
      {"dspark_target_layer_ids", json::array()},
      {"dspark_num_experts_per_tok", 129},
      {"num_nextn_predict_layers", -1},
  };
  for (const BadField& bad : cases) {
    // The field itself is named, or the one it must agree with.
    const std::string text = Refusal(With(bad.key, bad.value));
    EXPECT_THAT(text, HasSubstr("config.json: text_config.")) << bad.key << " " << bad.value;
    EXPECT_THAT(text, HasSubstr("expected")) << bad.key << " " << bad.value;
    EXPECT_THAT(text, HasSubstr("found")) << bad.key << " " << bad.value;
    EXPECT_THAT(text, ::testing::Not(HasSubstr("\n")));
  }
}

TEST(ModelConfig, RatioOfAnotherSourceIsRefused) {
  std::vector<int> ratios = Document(kReleased)["text_config"]["compress_ratios"];
  ratios[21] = 2;  // its rows would come from layer 20, which has ratio 1
  EXPECT_THAT(Refusal(With("compress_ratios", ratios)),
              HasSubstr("layer 21 to have the ratio 1 of its source layer 20"));
  ratios[21] = 1;
  ratios[41] = 1;
  EXPECT_THAT(Refusal(With("compress_ratios", ratios)),
              HasSubstr("expected 0 for the draft stages (entry 41), found 1"));
}

TEST(ModelConfig, WrongTopLevelFieldIsNamed) {
  const struct {
    const char* pointer;
    json value;
  } cases[] = {
      {"/model_type", "deepseek_v3"},
      {"/architectures", json::array({"LlamaForCausalLM"})},
      {"/dtype", "float16"},
      {"/bos_token_id", 129280},
      {"/eos_token_id", -1},
      {"/image_token_id", 1 << 20},
      {"/quantization_config", nullptr},
      {"/quantization_config/quant_method", "awq"},
      {"/quantization_config/weight_block_size", json::array({128, 128})},
      {"/quantization_config/scale_fmt", "float"},
      {"/quantization_config/expert_dtype", "fp8"},
      {"/quantization_config/activation_scheme", "static"},
      {"/text_config", 7},
      {"/text_config/rope_scaling/rope_type", "linear"},
      {"/text_config/rope_scaling/factor", 0.5},
      {"/text_config/rope_scaling/original_max_position_embeddings", 0},
      {"/vision_config/num_hidden_layers", -1},
      {"/vision_config/num_attention_heads", 3},
      {"/vision_config/patch_size", 0},
  };
  for (const auto& bad : cases) {
    json document = Document(kReleased);
    document[json::json_pointer(bad.pointer)] = bad.value;
    std::string path = bad.pointer + 1;
    std::replace(path.begin(), path.end(), '/', '.');
    EXPECT_THAT(Refusal(document), HasSubstr("config.json: " + path + ": expected")) << bad.value;
  }
}

TEST(ModelConfig, BrokenTextIsOneSentence) {
  EXPECT_EQ(Refusal(std::string("")), "config.json: not valid JSON near byte 1");
  EXPECT_EQ(Refusal(std::string("[]")), "config.json: expected a JSON object, found []");
  EXPECT_THAT(Refusal(std::string("{\"a\": 1e999}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(std::string("{\"a\": \"\xff\"}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(std::string(100000, '[')), HasSubstr("nested levels"));
  const std::string released = Document(kReleased).dump();
  for (size_t n = 0; n < released.size(); n += 97)
    EXPECT_NE(Refusal(released.substr(0, n)), "accepted") << n;
}

TEST(ModelConfig, UnreadableFileIsNamed) {
  try {
    ModelConfig::Load("/nowhere/config.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kNotFound);
    EXPECT_STREQ(e.what(), "/nowhere/config.json: cannot be opened: No such file or directory");
  }
  EXPECT_THROW(ModelConfig::Load("/tmp"), Error);
}

}  // namespace
}  // namespace deepinfer
