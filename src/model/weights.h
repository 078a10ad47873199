// The model's weights by name: what a layer reads, as views of checkpoint bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include "config/model_config.h"
#include "model/ranks.h"
#include "ops/moe.h"

namespace deepinfer {

// hc_attn_* or hc_ffn_*: the mix of one sublayer.
struct MixWeights {
  WeightView fn;         // F32 [(2 + S) S, S * hidden]
  const uint8_t* base;   // F32 [(2 + S) S]
  const uint8_t* scale;  // F32 [3]
};

struct CompressorWeights {
  WeightView wkv, wgate;  // bf16 [head_dim, hidden]; wgate only for ratio 2
  const uint8_t* norm;    // bf16 [head_dim]
  WeightView wk;          // bf16 [index_head_dim, head_dim]
  const uint8_t* k_norm;  // bf16 [index_head_dim]
};

struct IndexerWeights {
  WeightView wq_b;          // fp8 [index_n_heads * index_head_dim, q_lora_rank]
  WeightView weights_proj;  // bf16 [index_n_heads, hidden]
};

struct AttentionWeights {
  WeightView wq_a, wq_b, wkv, wo_a, wo_b;
  const uint8_t *q_norm, *kv_norm;  // bf16
  const uint8_t* attn_sink;         // F32 [heads]
  CompressorWeights compressor;     // set in kv source layers
  IndexerWeights indexer;           // set in index source layers
};

struct FfnWeights {
  WeightView gate;                     // bf16 [experts, hidden]
  const uint8_t* bias;                 // F32 [experts]
  std::vector<ExpertWeights> experts;  // routed, by id
  ExpertWeights shared;
};

struct EngramWeights {
  WeightView embed;                    // fp8 rows [table rows, engram_head_dim]
  WeightView wkv;                      // fp8 [(S + 1) * hidden, columns * engram_head_dim]
  const uint8_t *q_weight, *k_weight;  // bf16 [S, hidden]
};

struct LayerWeights {
  MixWeights hc_attn, hc_ffn;
  const uint8_t *attn_norm, *ffn_norm;  // bf16 [hidden]
  AttentionWeights attn;
  FfnWeights ffn;
  EngramWeights engram;  // set in Engram layers
};

// What the draft stages have besides their layers (spec 05 section 1).
struct DraftWeights {
  WeightView main_proj;                  // fp8 [hidden, targets * hidden]
  const uint8_t* main_norm;              // bf16 [hidden]
  const uint8_t* norm;                   // bf16 [hidden], of the last stage
  WeightView markov_embed, markov_head;  // bf16 [vocabulary, dspark_markov_rank]
  WeightView confidence;                 // bf16 [1, hidden + dspark_markov_rank]
};

struct ModelWeights {
  WeightView embed, head;            // bf16 [vocabulary, hidden]
  const uint8_t* norm;               // bf16 [hidden]
  std::vector<LayerWeights> layers;  // of the backbone, then of the draft stages
  DraftWeights draft;                // set when there are draft stages
  std::vector<Arena> copies;         // what ranks do not read in place
};

// Finds every tensor of the backbone and the draft stages. Reads the scales of all dense weights
// once: throws Error{kCorrupt} naming the tensor and the place of the first NaN scale. Experts and
// Engram rows are checked when a step first uses them. With `ranks`, what this rank owns: experts
// of others are empty views, other weights that are cut have its rows, or copies of its columns,
// only; Engram rows in bf16 are all decoded, and their scales checked.
ModelWeights BindWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                         const Ranks* ranks = nullptr);

}  // namespace deepinfer
