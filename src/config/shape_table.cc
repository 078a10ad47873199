#include "config/shape_table.h"

#include <fmt/core.h>

namespace deepinfer {
namespace {

int64_t CeilDiv32(int64_t n) { return (n + 31) / 32; }

class Builder {
 public:
  std::vector<TensorSpec> tensors;
  Part part = Part::kGlobal;

  void Vector(std::string name, std::string_view dtype, int64_t n) {
    tensors.push_back({std::move(name), dtype, part, 1, {n, 1}});
  }
  void Matrix(std::string name, std::string_view dtype, int64_t rows, int64_t cols) {
    tensors.push_back({std::move(name), dtype, part, 2, {rows, cols}});
  }
  // One scale per 32 x 32 tile.
  void Fp8(const std::string& base, int64_t rows, int64_t cols) {
    Matrix(base + ".weight", "F8_E4M3", rows, cols);
    Matrix(base + ".scale", "F8_E8M0", CeilDiv32(rows), CeilDiv32(cols));
  }
  // One scale per row and 32 columns; two elements a byte.
  void Fp4(const std::string& base, int64_t rows, int64_t cols) {
    Matrix(base + ".weight", "I8", rows, cols / 2);
    Matrix(base + ".scale", "F8_E8M0", rows, cols / 32);
  }
  // One scale per row and 32 columns.
  void Fp8Rows(const std::string& base, int64_t rows, int64_t cols) {
    Matrix(base + ".weight", "F8_E4M3", rows, cols);
    Matrix(base + ".scale", "F8_E8M0", rows, cols / 32);
  }
};

void AddAttention(Builder& b, const ModelConfig& c, const std::string& p) {
  const int64_t group_cols = c.num_attention_heads / c.o_groups * c.head_dim;
  b.Fp8(p + "attn.wq_a", c.q_lora_rank, c.hidden_size);
  b.Vector(p + "attn.q_norm.weight", "BF16", c.q_lora_rank);
  b.Fp8(p + "attn.wq_b", c.num_attention_heads * c.head_dim, c.q_lora_rank);
  b.Fp8(p + "attn.wkv", c.head_dim, c.hidden_size);
  b.Vector(p + "attn.kv_norm.weight", "BF16", c.head_dim);
  b.Vector(p + "attn.attn_sink", "F32", c.num_attention_heads);
  b.Fp8(p + "attn.wo_a", c.o_groups * c.o_lora_rank, group_cols);
  b.Fp8(p + "attn.wo_b", c.hidden_size, c.o_groups * c.o_lora_rank);
}

// Compressor and indexer of a source layer.
void AddSources(Builder& b, const ModelConfig& c, int layer, const std::string& p) {
  if (c.is_kv_source(layer)) {
    b.Matrix(p + "attn.compressor.wkv.weight", "BF16", c.head_dim, c.hidden_size);
    if (c.compress_ratios[static_cast<size_t>(layer)] > 1) {
      b.Matrix(p + "attn.compressor.wgate.weight", "BF16", c.head_dim, c.hidden_size);
    }
    b.Vector(p + "attn.compressor.norm.weight", "BF16", c.head_dim);
    b.Matrix(p + "attn.indexer.wk.weight", "BF16", c.index_head_dim, c.head_dim);
    b.Vector(p + "attn.indexer.k_norm.weight", "BF16", c.index_head_dim);
  }
  if (c.is_index_source(layer)) {
    b.Fp8(p + "attn.indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank);
    b.Matrix(p + "attn.indexer.weights_proj.weight", "BF16", c.index_n_heads, c.hidden_size);
  }
}

// Norms and residual streams: fn rows are pre (hc_mult), post (hc_mult) and comb (hc_mult^2).
void AddStreams(Builder& b, const ModelConfig& c, const std::string& p) {
  const int64_t mixes = c.hc_mult * (2 + c.hc_mult);
  for (const char* sublayer : {"attn", "ffn"}) {
    b.Vector(fmt::format("{}{}_norm.weight", p, sublayer), "BF16", c.hidden_size);
    b.Matrix(fmt::format("{}hc_{}_fn", p, sublayer), "F32", mixes, c.hc_mult * c.hidden_size);
    b.Vector(fmt::format("{}hc_{}_base", p, sublayer), "F32", mixes);
    b.Vector(fmt::format("{}hc_{}_scale", p, sublayer), "F32", 3);
  }
}

void AddMoe(Builder& b, const ModelConfig& c, const std::string& p, int64_t n_experts,
            Part experts_part) {
  const int64_t hidden = c.hidden_size, inner = c.moe_intermediate_size;
  b.Matrix(p + "ffn.gate.weight", "BF16", n_experts, hidden);
  b.Vector(p + "ffn.gate.bias", "F32", n_experts);
  b.Vector(p + "ffn.gate.bias_vl", "F32", n_experts);
  b.Fp8(p + "ffn.shared_experts.w1", inner, hidden);
  b.Fp8(p + "ffn.shared_experts.w3", inner, hidden);
  b.Fp8(p + "ffn.shared_experts.w2", hidden, inner);
  const Part outer = b.part;
  b.part = experts_part;
  for (int64_t e = 0; e < n_experts; ++e) {
    const std::string expert = fmt::format("{}ffn.experts.{}.", p, e);
    b.Fp4(expert + "w1", inner, hidden);
    b.Fp4(expert + "w3", inner, hidden);
    b.Fp4(expert + "w2", hidden, inner);
  }
  b.part = outer;
}

void AddEngram(Builder& b, const ModelConfig& c, size_t table, const std::string& p) {
  b.part = Part::kEngram;
  b.Fp8Rows(p + "engram.embed", c.engram_num_embeddings[table], c.engram_head_dim);
  b.Matrix(p + "engram.q_weight", "BF16", c.hc_mult, c.hidden_size);
  b.Matrix(p + "engram.k_weight", "BF16", c.hc_mult, c.hidden_size);
  b.Fp8(p + "engram.wkv", (c.hc_mult + 1) * c.hidden_size, c.engram_columns() * c.engram_head_dim);
}

void AddLayers(Builder& b, const ModelConfig& c) {
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("layers.{}.", layer);
    b.part = Part::kBackbone;
    AddAttention(b, c, p);
    AddSources(b, c, layer, p);
    AddStreams(b, c, p);
    AddMoe(b, c, p, c.n_routed_experts, Part::kExperts);
    const int table = c.engram_index(layer);
    if (table >= 0) AddEngram(b, c, static_cast<size_t>(table), p);
  }
}

void AddDraftStages(Builder& b, const ModelConfig& c) {
  b.part = Part::kMtp;
  const int64_t stages = c.num_nextn_predict_layers;
  for (int64_t m = 0; m < stages; ++m) {
    const std::string p = fmt::format("mtp.{}.", m);
    if (m == 0) {
      b.Fp8(p + "main_proj", c.hidden_size, std::ssize(c.dspark_target_layer_ids) * c.hidden_size);
      b.Vector(p + "main_norm.weight", "BF16", c.hidden_size);
    }
    AddAttention(b, c, p);
    AddStreams(b, c, p);
    AddMoe(b, c, p, c.dspark_n_routed_experts, Part::kMtp);
    if (m == stages - 1) {
      b.Vector(p + "norm.weight", "BF16", c.hidden_size);
      b.Matrix(p + "markov_head.embed.weight", "BF16", c.vocab_size, c.dspark_markov_rank);
      b.Matrix(p + "markov_head.head.weight", "BF16", c.vocab_size, c.dspark_markov_rank);
      b.Matrix(p + "confidence_head.proj.weight", "BF16", 1, c.hidden_size + c.dspark_markov_rank);
    }
  }
}

// A weight [rows, cols] with a bias, both bf16.
void AddBiased(Builder& b, const std::string& base, int64_t rows, int64_t cols) {
  b.Matrix(base + ".weight", "BF16", rows, cols);
  b.Vector(base + ".bias", "BF16", rows);
}

void AddVision(Builder& b, const ModelConfig& c) {
  b.part = Part::kVision;
  for (const char* name : {"image_start", "image_end", "image_newline"})
    b.Vector(name, "BF16", c.hidden_size);
  const VisionConfig& v = c.vision;
  if (v.num_hidden_layers == 0) return;
  AddBiased(b, "vision.patch_embed.proj", v.hidden_size, 3 * v.patch_size * v.patch_size);
  for (int64_t i = 0; i < v.num_hidden_layers; ++i) {
    const std::string p = fmt::format("vision.blocks.{}.", i);
    AddBiased(b, p + "attn.wqkv", 3 * v.hidden_size, v.hidden_size);
    AddBiased(b, p + "attn.wo", v.hidden_size, v.hidden_size);
    b.Matrix(p + "mlp.w1.weight", "BF16", 2 * v.intermediate_size, v.hidden_size);
    b.Matrix(p + "mlp.w2.weight", "BF16", v.hidden_size, v.intermediate_size);
    b.Vector(p + "norm1.weight", "BF16", v.hidden_size);
    b.Vector(p + "norm2.weight", "BF16", v.hidden_size);
  }
  b.Vector("vision.norm.weight", "BF16", v.hidden_size);
  AddBiased(b, "aligner.w1", c.hidden_size,
            v.hidden_size * v.downsample_ratio * v.downsample_ratio);
  AddBiased(b, "aligner.w2", c.hidden_size, c.hidden_size);
}

}  // namespace

std::string_view PartName(Part part) {
  constexpr std::string_view kNames[kNumParts] = {"global", "backbone", "experts",
                                                  "engram", "mtp",      "vision"};
  return kNames[static_cast<size_t>(part)];
}

int64_t StoredTypeBytes(std::string_view dtype) {
  if (dtype == "F8_E4M3" || dtype == "F8_E8M0" || dtype == "I8" || dtype == "U8") return 1;
  if (dtype == "BOOL" || dtype == "F8_E5M2") return 1;
  if (dtype == "BF16" || dtype == "F16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  return 0;
}

int64_t TensorSpec::bytes() const { return shape[0] * shape[1] * StoredTypeBytes(dtype); }

std::vector<TensorSpec> ShapeTable(const ModelConfig& config) {
  Builder b;
  b.part = Part::kGlobal;
  b.Matrix("embed.weight", "BF16", config.vocab_size, config.hidden_size);
  b.Matrix("head.weight", "BF16", config.vocab_size, config.hidden_size);
  b.Vector("norm.weight", "BF16", config.hidden_size);
  AddLayers(b, config);
  AddDraftStages(b, config);
  AddVision(b, config);
  return std::move(b.tensors);
}

}  // namespace deepinfer
