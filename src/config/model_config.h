// ModelConfig: what config.json says about a checkpoint, checked once so that nobody has to check
// again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace deepinfer {

// text_config.rope_scaling (YaRN), applied in layers with a compression ratio only (spec 01
// section 2.2).
struct RopeScaling {
  double factor, beta_fast, beta_slow;
  int64_t original_max_position_embeddings;
};

// vision_config. num_hidden_layers == 0: the checkpoint has no vision tower and the other fields
// are 0.
struct VisionConfig {
  int64_t num_hidden_layers = 0, hidden_size = 0, num_attention_heads = 0, intermediate_size = 0;
  int64_t patch_size = 0, downsample_ratio = 0, max_image_tokens = 0, min_pixels = 0;
  double rope_theta = 0;
  std::optional<double> max_wh_ratio;
};

// Fields carry the names of config.json; those of text_config and of the top level share one
// struct. After Load or Parse every rule of spec 01 section 1.2 holds, every size is positive and
// small enough that the element count of any tensor fits int64_t with room to spare, every id is
// inside the vocabulary, and every width that is stored or rounded in blocks of 32 is a multiple
// of 32. What this program does not implement (another activation, scoring function, tied
// embeddings, ...) has been refused by name.
struct ModelConfig {
  // Top level.
  TokenId bos_token_id, eos_token_id, pad_token_id;
  TokenId image_token_id;  // -1 when the file has none

  // Sizes.
  int64_t vocab_size, hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads;
  int64_t head_dim, qk_rope_head_dim, q_lora_rank, o_lora_rank, o_groups;
  int64_t max_position_embeddings, sliding_window;
  float rms_norm_eps;
  double rope_theta, compress_rope_theta;
  std::optional<RopeScaling> rope_scaling;  // absent: plain frequencies everywhere

  // Experts.
  int64_t moe_intermediate_size, n_routed_experts, n_shared_experts, num_experts_per_tok;
  float swiglu_limit, routed_scaling_factor;

  // Compressed attention. compress_ratios has exactly num_hidden_layers entries here (draft stages
  // are always 0); the layer lists are ascending.
  std::vector<int> compress_ratios, kv_source_layer_ids, index_source_layer_ids;
  int64_t index_n_heads, index_head_dim, index_topk;
  int candidate_source_layer_id;  // -1: no two-level selection
  int64_t candidate_topk_blocks, candidate_block_size;

  // Residual streams.
  int64_t hc_mult, hc_sinkhorn_iters;
  float hc_eps;

  // Engram. All zero with empty lists when the model has no such layers.
  std::vector<int> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // table rows, one entry per engram layer
  int64_t engram_max_ngram_size, engram_vocab_size, engram_n_heads, engram_head_dim,
      engram_compressed_vocab_size;
  TokenId engram_pad_token_id;

  // Draft stages (DSpark). All zero with an empty list when num_nextn_predict_layers is 0.
  int64_t num_nextn_predict_layers, dspark_block_size, dspark_markov_rank;
  int64_t dspark_n_routed_experts, dspark_num_experts_per_tok;
  TokenId dspark_noise_token_id;
  std::vector<int> dspark_target_layer_ids;

  VisionConfig vision;

  // Draft stage m counts as layer num_hidden_layers + m: window rows only, experts of its own.
  int64_t num_layers_and_stages() const { return num_hidden_layers + num_nextn_predict_layers; }
  bool is_draft_stage(int layer) const { return layer >= num_hidden_layers; }
  int ratio(int layer) const {
    return is_draft_stage(layer) ? 0 : compress_ratios[static_cast<size_t>(layer)];
  }
  int64_t n_experts(int layer) const {
    return is_draft_stage(layer) ? dspark_n_routed_experts : n_routed_experts;
  }
  int64_t experts_per_tok(int layer) const {
    return is_draft_stage(layer) ? dspark_num_experts_per_tok : num_experts_per_tok;
  }
  // Width of the features that the draft stages start from: one tap beside the other.
  int64_t draft_features() const {
    return static_cast<int64_t>(dspark_target_layer_ids.size()) * hidden_size;
  }
  // "layers.3." or "mtp.0.": what the names of a layer's tensors begin with.
  std::string TensorPrefix(int layer) const;
  // The most of all layers and stages.
  int64_t max_experts() const { return std::max(n_routed_experts, dspark_n_routed_experts); }
  int64_t max_experts_per_tok() const {
    return std::max(num_experts_per_tok, dspark_num_experts_per_tok);
  }

  // Owner tables (spec 01 section 1.3). Greatest source <= layer; -1 for a layer with ratio 0.
  int kv_owner(int layer) const {
    return is_draft_stage(layer) ? -1 : kv_owners_[static_cast<size_t>(layer)];
  }
  int topk_owner(int layer) const {
    return is_draft_stage(layer) ? -1 : topk_owners_[static_cast<size_t>(layer)];
  }
  bool is_kv_source(int layer) const { return kv_owner(layer) == layer; }
  bool is_index_source(int layer) const { return topk_owner(layer) == layer; }
  // Index source that picks only inside the candidate blocks of candidate_source_layer_id (spec 01
  // section 6.4).
  bool uses_candidates(int layer) const {
    return candidate_source_layer_id >= 0 && layer > candidate_source_layer_id &&
           is_index_source(layer);
  }
  // Position in engram_layer_ids, or -1.
  int engram_index(int layer) const;
  // Engram rows looked up per token and layer: (engram_max_ngram_size - 1) * engram_n_heads.
  int64_t engram_columns() const {
    return engram_layer_ids.empty() ? 0 : (engram_max_ngram_size - 1) * engram_n_heads;
  }

  // Reads `path` (a config.json). Throws Error naming the field, what was expected and what was
  // found.
  static ModelConfig Load(const std::string& path);
  // The same from text; `name` stands for the file in messages. Unknown keys are ignored; null
  // counts as absent.
  static ModelConfig Parse(std::string_view json, const std::string& name);

 private:
  friend class ConfigReader;
  std::vector<int> kv_owners_, topk_owners_;
};

}  // namespace deepinfer
