#include "config/model_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/read_file.h"

namespace deepinfer {
namespace {

using nlohmann::json;

constexpr int64_t kMaxFileBytes = 16 << 20;
constexpr int kMaxDepth = 16;
constexpr int64_t kMaxWidth = int64_t{1} << 20;    // any row length or row count of a dense weight
constexpr int64_t kMaxExperts = int64_t{1} << 18;  // over all layers; the release has 15,360
constexpr int64_t kMaxTableRows = int64_t{1} << 40;

constexpr double kMaxReal = 1e9;

[[noreturn]] void Refuse(const std::string& what, const std::string& expected,
                         const std::string& found) {
  throw Error(Code::kInvalid, fmt::format("{}: expected {}, found {}", what, expected, found));
}

std::string Shown(const json& value) {
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

// Typed access to one JSON object. Every message begins with the file and the path of the field.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  // Present and not null.
  bool Has(const char* key) const { return Find(key) != nullptr; }

  std::string Path(const char* key) const { return where_ + key; }

  int64_t Int(const char* key, int64_t low, int64_t high) const {
    return IntOf(At(key), Path(key), low, high);
  }

  int64_t IntOr(const char* key, int64_t fallback, int64_t low, int64_t high) const {
    return Has(key) ? Int(key, low, high) : fallback;
  }

  // A width that is cut into blocks of 32.
  int64_t Blocks32(const char* key) const {
    const int64_t value = Int(key, 32, kMaxWidth);
    if (value % 32 != 0) Refuse(Path(key), "a multiple of 32", fmt::format("{}", value));
    return value;
  }

  // low <= value <= high, both finite.
  double Real(const char* key, double low, double high) const {
    const json& value = At(key);
    const double x = value.is_number() ? value.get<double>() : std::nan("");
    if (!(x >= low && x <= high))
      Refuse(Path(key), fmt::format("a number from {} to {}", low, high), Shown(value));
    return x;
  }

  std::vector<int64_t> IntList(const char* key, int64_t low, int64_t high, size_t max_count) const {
    const json& value = At(key);
    if (!value.is_array() || value.size() > max_count) {
      Refuse(Path(key), fmt::format("a list of at most {} integers", max_count), Shown(value));
    }
    std::vector<int64_t> list;
    for (const json& item : value) list.push_back(IntOf(item, Path(key), low, high));
    return list;
  }

  // Layer ids below `layers`, strictly ascending.
  std::vector<int> Layers(const char* key, int64_t layers) const {
    const std::vector<int64_t> list = IntList(key, 0, layers - 1, static_cast<size_t>(layers));
    for (size_t i = 1; i < list.size(); ++i) {
      if (list[i] <= list[i - 1]) Refuse(Path(key), "ascending layer ids", Shown(At(key)));
    }
    return {list.begin(), list.end()};
  }

  // Refuses anything but `expected`: the program implements only that.
  void MustBe(const char* key, const json& expected) const {
    const json& value = At(key);
    if (value != expected) {
      throw Error(Code::kUnsupported, fmt::format("{}: expected {}, found {}", Path(key),
                                                  expected.dump(), Shown(value)));
    }
  }
  void MustBeIfPresent(const char* key, const json& expected) const {
    if (Has(key)) MustBe(key, expected);
  }

  Fields Object(const char* key) const {
    const json& value = At(key);
    if (!value.is_object()) Refuse(Path(key), "an object", Shown(value));
    return Fields(value, Path(key) + ".");
  }

 private:
  const json* Find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  const json& At(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr)
      throw Error(Code::kInvalid, fmt::format("{}: expected a value, found none", Path(key)));
    return *value;
  }

  static int64_t IntOf(const json& value, const std::string& path, int64_t low, int64_t high) {
    const bool fits =
        value.is_number_integer() &&
        !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
    const int64_t x = fits ? value.get<int64_t>() : 0;
    if (!fits || x < low || x > high)
      Refuse(path, fmt::format("an integer from {} to {}", low, high), Shown(value));
    return x;
  }

  const json& object_;
  std::string where_;
};

// num_experts_per_tok and the like: a count that may not exceed another field.
void AtMost(const Fields& f, const char* key, int64_t value, const char* other, int64_t limit) {
  if (value > limit)
    Refuse(f.Path(key), fmt::format("at most {} = {}", other, limit), fmt::format("{}", value));
}

json ParseJson(std::string_view text, const std::string& name) {
  const auto limit_depth = [&name](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) {
      throw Error(Code::kCorrupt, fmt::format("{}: expected at most {} nested levels, found more",
                                              name, kMaxDepth));
    }
    return true;
  };
  try {
    return json::parse(text, limit_depth);
  } catch (const json::parse_error& e) {
    throw Error(Code::kCorrupt, fmt::format("{}: not valid JSON near byte {}", name, e.byte));
  } catch (const json::out_of_range&) {  // a number such as 1e999
    throw Error(Code::kCorrupt, fmt::format("{}: not valid JSON: a number is out of range", name));
  }
}

}  // namespace

// Fills a ModelConfig group by group; each group is checked when it is read.
class ConfigReader {
 public:
  ConfigReader(const json& root, const std::string& name)
      : top_(root, name + ": "), text_(top_.Object("text_config")) {}

  ModelConfig Read() {
    ReadArchitecture();
    ReadSizes();
    ReadRope();
    ReadExperts();
    ReadStreams();
    ReadLayerTables();
    CheckOwners();
    ReadIndexer();
    ReadEngram();
    ReadDraft();
    ReadVision();
    ReadIds();
    return std::move(c_);
  }

 private:
  void ReadArchitecture();
  void ReadSizes();
  void ReadRope();
  void ReadExperts();
  void ReadStreams();
  void ReadLayerTables();
  void CheckOwners();
  void ReadIndexer();
  void ReadEngram();
  void ReadDraft();
  void ReadVision();
  void ReadIds();

  TokenId Id(const Fields& f, const char* key) const {
    return static_cast<TokenId>(f.Int(key, 0, c_.vocab_size - 1));
  }

  Fields top_, text_;
  ModelConfig c_{};
};

void ConfigReader::ReadArchitecture() {
  top_.MustBe("model_type", "deepseek_v41");
  top_.MustBeIfPresent("architectures", json::array({"DeepseekV41ForCausalLM"}));
  top_.MustBeIfPresent("dtype", "bfloat16");
  const Fields quant = top_.Object("quantization_config");
  quant.MustBe("quant_method", "fp8");
  quant.MustBeIfPresent("activation_scheme", "dynamic");
  quant.MustBe("weight_block_size", json::array({32, 32}));
  quant.MustBe("scale_fmt", "ue8m0");
  quant.MustBe("expert_dtype", "fp4");
  text_.MustBeIfPresent("model_type", "deepseek_v41_text");
  text_.MustBe("hidden_act", "silu");
  text_.MustBe("scoring_func", "sqrtsoftplus");
  text_.MustBe("topk_method", "noaux_tc");
  text_.MustBe("norm_topk_prob", true);
  text_.MustBe("num_key_value_heads", 1);
  text_.MustBe("n_shared_experts", 1);
  text_.MustBeIfPresent("attention_bias", false);
  text_.MustBeIfPresent("tie_word_embeddings", false);
}

void ConfigReader::ReadSizes() {
  c_.vocab_size = text_.Int("vocab_size", 3, int64_t{1} << 24);
  c_.hidden_size = text_.Blocks32("hidden_size");
  c_.num_hidden_layers = text_.Int("num_hidden_layers", 1, 1024);
  c_.num_attention_heads = text_.Int("num_attention_heads", 1, 4096);
  c_.num_key_value_heads = 1;
  c_.head_dim = text_.Blocks32("head_dim");
  c_.q_lora_rank = text_.Blocks32("q_lora_rank");
  c_.o_lora_rank = text_.Int("o_lora_rank", 1, kMaxWidth);
  c_.o_groups = text_.Int("o_groups", 1, 4096);
  c_.max_position_embeddings = text_.Int("max_position_embeddings", 1, int64_t{1} << 30);
  c_.sliding_window = text_.Int("sliding_window", 1, kMaxWidth);
  c_.rms_norm_eps = static_cast<float>(text_.Real("rms_norm_eps", 0, 1));
  AtMost(text_, "num_attention_heads", c_.num_attention_heads, "the widest query / head_dim",
         kMaxWidth / c_.head_dim);
  if (c_.num_attention_heads % c_.o_groups != 0) {
    Refuse(text_.Path("o_groups"),
           fmt::format("a divisor of num_attention_heads = {}", c_.num_attention_heads),
           fmt::format("{}", c_.o_groups));
  }
  const int64_t output_rank = c_.o_groups * c_.o_lora_rank;
  if (output_rank % 32 != 0 || output_rank > kMaxWidth) {
    Refuse(text_.Path("o_lora_rank"),
           fmt::format("o_groups * o_lora_rank to be a multiple of 32 up to {}", kMaxWidth),
           fmt::format("{}", output_rank));
  }
}

void ConfigReader::ReadRope() {
  c_.qk_rope_head_dim = text_.Int("qk_rope_head_dim", 2, c_.head_dim);
  if (c_.qk_rope_head_dim % 2 != 0) {
    Refuse(text_.Path("qk_rope_head_dim"), "an even number",
           fmt::format("{}", c_.qk_rope_head_dim));
  }
  c_.rope_theta = text_.Real("rope_theta", 1, 1e12);
  c_.compress_rope_theta = text_.Real("compress_rope_theta", 1, 1e12);
  if (!text_.Has("rope_scaling")) return;
  const Fields rope = text_.Object("rope_scaling");
  rope.MustBe("rope_type", "yarn");
  RopeScaling s;
  s.factor = rope.Real("factor", 1, kMaxReal);
  s.beta_fast = rope.Real("beta_fast", 1e-3, kMaxReal);
  s.beta_slow = rope.Real("beta_slow", 1e-3, kMaxReal);
  s.original_max_position_embeddings =
      rope.Int("original_max_position_embeddings", 1, int64_t{1} << 30);
  if (c_.compress_rope_theta <= 1)
    Refuse(text_.Path("compress_rope_theta"), "more than 1 with YaRN", "1");
  c_.rope_scaling = s;
}

void ConfigReader::ReadExperts() {
  c_.moe_intermediate_size = text_.Blocks32("moe_intermediate_size");
  c_.n_routed_experts = text_.Int("n_routed_experts", 1, kMaxExperts / c_.num_hidden_layers);
  c_.n_shared_experts = 1;
  c_.num_experts_per_tok = text_.Int("num_experts_per_tok", 1, 64);
  AtMost(text_, "num_experts_per_tok", c_.num_experts_per_tok, "n_routed_experts",
         c_.n_routed_experts);
  c_.swiglu_limit = static_cast<float>(text_.Real("swiglu_limit", 1e-6, kMaxReal));
  c_.routed_scaling_factor =
      static_cast<float>(text_.Real("routed_scaling_factor", 1e-6, kMaxReal));
}

void ConfigReader::ReadStreams() {
  c_.hc_mult = text_.Int("hc_mult", 1, 8);  // expand holds so many on its stack
  c_.hc_sinkhorn_iters = text_.Int("hc_sinkhorn_iters", 1, 1000);
  c_.hc_eps = static_cast<float>(text_.Real("hc_eps", 0, 1));
}

void ConfigReader::ReadLayerTables() {
  const int64_t layers = c_.num_hidden_layers;
  const std::vector<int64_t> ratios = text_.IntList("compress_ratios", 0, 2, 4096);
  if (std::ssize(ratios) < layers) {
    Refuse(text_.Path("compress_ratios"),
           fmt::format("at least num_hidden_layers = {} entries", layers),
           fmt::format("{}", ratios.size()));
  }
  // Entries behind the layers belong to the draft stages, which attend their window only.
  for (size_t i = static_cast<size_t>(layers); i < ratios.size(); ++i) {
    if (ratios[i] != 0) {
      throw Error(Code::kUnsupported,
                  fmt::format("{}: expected 0 for the draft stages (entry {}), found {}",
                              text_.Path("compress_ratios"), i, ratios[i]));
    }
  }
  c_.compress_ratios.assign(ratios.begin(), ratios.begin() + layers);
  c_.kv_source_layer_ids = text_.Layers("kv_source_layer_ids", layers);
  c_.index_source_layer_ids = text_.Layers("index_source_layer_ids", layers);
  c_.candidate_source_layer_id =
      static_cast<int>(text_.IntOr("candidate_source_layer_id", -1, -1, layers - 1));

  c_.kv_owners_.assign(static_cast<size_t>(layers), -1);
  c_.topk_owners_ = c_.kv_owners_;
  const auto greatest_upto = [](const std::vector<int>& sources, int layer) {
    const auto after = std::upper_bound(sources.begin(), sources.end(), layer);
    return after == sources.begin() ? -1 : *(after - 1);
  };
  for (int layer = 0; layer < layers; ++layer) {
    if (c_.compress_ratios[static_cast<size_t>(layer)] == 0) continue;
    c_.kv_owners_[static_cast<size_t>(layer)] = greatest_upto(c_.kv_source_layer_ids, layer);
    c_.topk_owners_[static_cast<size_t>(layer)] = greatest_upto(c_.index_source_layer_ids, layer);
  }
}

// Spec 01 section 1.2, rules 2 and 3.
void ConfigReader::CheckOwners() {
  const auto ratio = [this](int layer) { return c_.compress_ratios[static_cast<size_t>(layer)]; };
  for (const int source : c_.index_source_layer_ids) {
    if (ratio(source) == 0) {
      Refuse(text_.Path("index_source_layer_ids"), "layers with a compression ratio",
             fmt::format("layer {}", source));
    }
  }
  for (const int source : c_.kv_source_layer_ids) {
    if (!std::binary_search(c_.index_source_layer_ids.begin(), c_.index_source_layer_ids.end(),
                            source)) {
      Refuse(text_.Path("kv_source_layer_ids"), "layers that are also in index_source_layer_ids",
             fmt::format("layer {}", source));
    }
  }
  for (int layer = 0; layer < c_.num_hidden_layers; ++layer) {
    if (ratio(layer) == 0) continue;
    if (c_.kv_owner(layer) < 0 || c_.topk_owner(layer) < 0) {
      Refuse(text_.Path("kv_source_layer_ids"),
             fmt::format("a source at or before layer {}", layer), "none");
    }
    if (ratio(c_.kv_owner(layer)) != ratio(layer)) {
      Refuse(text_.Path("compress_ratios"),
             fmt::format("layer {} to have the ratio {} of its source layer {}", layer,
                         ratio(c_.kv_owner(layer)), c_.kv_owner(layer)),
             fmt::format("{}", ratio(layer)));
    }
  }
  const int candidate = c_.candidate_source_layer_id;
  if (candidate < 0) return;
  if (!std::binary_search(c_.kv_source_layer_ids.begin(), c_.kv_source_layer_ids.end(),
                          candidate)) {
    Refuse(text_.Path("candidate_source_layer_id"), "a layer of kv_source_layer_ids or -1",
           fmt::format("{}", candidate));
  }
  for (const int source : c_.index_source_layer_ids) {
    if (source > candidate && c_.kv_owner(source) != candidate) {
      Refuse(text_.Path("candidate_source_layer_id"),
             fmt::format("the kv source of index source layer {}, which is layer {}", source,
                         c_.kv_owner(source)),
             fmt::format("{}", candidate));
    }
  }
}

void ConfigReader::ReadIndexer() {
  if (c_.index_source_layer_ids.empty()) return;  // window attention only
  c_.index_n_heads = text_.Int("index_n_heads", 1, 4096);
  c_.index_head_dim = text_.Blocks32("index_head_dim");
  AtMost(text_, "index_n_heads", c_.index_n_heads, "the widest query / index_head_dim",
         kMaxWidth / c_.index_head_dim);
  AtMost(text_, "qk_rope_head_dim", c_.qk_rope_head_dim, "index_head_dim", c_.index_head_dim);
  c_.index_topk = text_.Int("index_topk", 1, kMaxWidth);
  if (c_.candidate_source_layer_id < 0) return;
  c_.candidate_topk_blocks = text_.Int("candidate_topk_blocks", 1, kMaxWidth);
  c_.candidate_block_size = text_.Int("candidate_block_size", 1, kMaxWidth);
  // Rule 5: a candidate mask may never leave fewer rows than the selection wants.
  const int64_t rows = c_.candidate_topk_blocks * c_.candidate_block_size;
  if (rows < c_.index_topk + c_.candidate_block_size) {
    Refuse(text_.Path("candidate_topk_blocks"),
           fmt::format("candidate_topk_blocks * candidate_block_size of at least index_topk + "
                       "candidate_block_size = {}",
                       c_.index_topk + c_.candidate_block_size),
           fmt::format("{}", rows));
  }
}

void ConfigReader::ReadEngram() {
  if (text_.Has("engram_layer_ids"))
    c_.engram_layer_ids = text_.Layers("engram_layer_ids", c_.num_hidden_layers);
  if (c_.engram_layer_ids.empty()) return;
  c_.engram_num_embeddings = text_.IntList("engram_num_embeddings", 1, kMaxTableRows, 1024);
  if (c_.engram_num_embeddings.size() != c_.engram_layer_ids.size()) {
    Refuse(text_.Path("engram_num_embeddings"),
           fmt::format("{} entries as engram_layer_ids", c_.engram_layer_ids.size()),
           fmt::format("{}", c_.engram_num_embeddings.size()));
  }
  c_.engram_max_ngram_size = text_.Int("engram_max_ngram_size", 2, 16);
  c_.engram_vocab_size = text_.Int("engram_vocab_size", 2, int64_t{1} << 32);
  c_.engram_n_heads = text_.Int("engram_n_heads", 1, 1024);
  c_.engram_head_dim = text_.Blocks32("engram_head_dim");
  AtMost(text_, "engram_n_heads", c_.engram_columns(), "the widest input / engram_head_dim",
         kMaxWidth / c_.engram_head_dim);
  c_.engram_compressed_vocab_size = text_.Int("engram_compressed_vocab_size", 1, c_.vocab_size);
  c_.engram_pad_token_id = Id(text_, "engram_pad_token_id");
}

void ConfigReader::ReadDraft() {
  c_.num_nextn_predict_layers = text_.IntOr("num_nextn_predict_layers", 0, 0, 64);
  if (c_.num_nextn_predict_layers == 0) return;
  c_.dspark_block_size = text_.Int("dspark_block_size", 1, 64);
  c_.dspark_noise_token_id = Id(text_, "dspark_noise_token_id");
  c_.dspark_target_layer_ids = text_.Layers("dspark_target_layer_ids", c_.num_hidden_layers);
  const int64_t targets = std::ssize(c_.dspark_target_layer_ids);
  if (targets == 0 || targets > kMaxWidth / c_.hidden_size) {
    Refuse(text_.Path("dspark_target_layer_ids"),
           fmt::format("1 to {} layers", kMaxWidth / c_.hidden_size), fmt::format("{}", targets));
  }
  c_.dspark_markov_rank = text_.Int("dspark_markov_rank", 1, kMaxWidth);
  c_.dspark_n_routed_experts = text_.Int("dspark_n_routed_experts", 1, kMaxExperts / 64);
  c_.dspark_num_experts_per_tok = text_.Int("dspark_num_experts_per_tok", 1, 64);
  AtMost(text_, "dspark_num_experts_per_tok", c_.dspark_num_experts_per_tok,
         "dspark_n_routed_experts", c_.dspark_n_routed_experts);
}

void ConfigReader::ReadVision() {
  if (!top_.Has("vision_config")) return;
  const Fields f = top_.Object("vision_config");
  f.MustBeIfPresent("model_type", "deepseek_v41_vision");
  VisionConfig& v = c_.vision;
  v.num_hidden_layers = f.Int("num_hidden_layers", 0, 1024);
  if (v.num_hidden_layers == 0) return;
  v.hidden_size = f.Int("hidden_size", 1, 1 << 16);
  v.num_attention_heads = f.Int("num_attention_heads", 1, 4096);
  v.intermediate_size = f.Int("intermediate_size", 1, 1 << 18);
  v.patch_size = f.Int("patch_size", 1, 256);
  v.downsample_ratio = f.Int("downsample_ratio", 1, 16);
  v.max_image_tokens = f.Int("max_image_tokens", 1, kMaxWidth);
  v.min_pixels = f.Int("min_pixels", 1, int64_t{1} << 32);
  v.rope_theta = f.Real("rope_theta", 1, 1e12);
  if (f.Has("max_wh_ratio")) v.max_wh_ratio = f.Real("max_wh_ratio", 1, kMaxReal);
  if (v.hidden_size % v.num_attention_heads != 0) {
    Refuse(f.Path("num_attention_heads"),
           fmt::format("a divisor of hidden_size = {}", v.hidden_size),
           fmt::format("{}", v.num_attention_heads));
  }
}

void ConfigReader::ReadIds() {
  c_.bos_token_id = Id(top_, "bos_token_id");
  c_.eos_token_id = Id(top_, "eos_token_id");
  c_.pad_token_id = Id(top_, "pad_token_id");
  c_.image_token_id = top_.Has("image_token_id") || c_.vision.num_hidden_layers > 0
                          ? Id(top_, "image_token_id")
                          : -1;
}

std::string ModelConfig::TensorPrefix(int layer) const {
  return is_draft_stage(layer) ? fmt::format("mtp.{}.", layer - num_hidden_layers)
                               : fmt::format("layers.{}.", layer);
}

int ModelConfig::engram_index(int layer) const {
  const auto it = std::find(engram_layer_ids.begin(), engram_layer_ids.end(), layer);
  return it == engram_layer_ids.end() ? -1 : static_cast<int>(it - engram_layer_ids.begin());
}

ModelConfig ModelConfig::Load(const std::string& path) {
  return Parse(ReadFile(path, kMaxFileBytes), path);
}

ModelConfig ModelConfig::Parse(std::string_view text, const std::string& name) {
  const json root = ParseJson(text, name);
  if (!root.is_object()) Refuse(name, "a JSON object", Shown(root));
  return ConfigReader(root, name).Read();
}

}  // namespace deepinfer
