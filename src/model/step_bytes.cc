#include "model/step_bytes.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "config/shape_table.h"

namespace deepinfer {

namespace {

bool IsReadByEveryStep(const TensorSpec& spec) {
  if (spec.part == Part::kGlobal) return spec.name == "head.weight";
  if (spec.part == Part::kEngram) return spec.name.find("engram.wkv.") != std::string::npos;
  return spec.part == Part::kBackbone && spec.rank == 2;
}

// Different experts of `n` that `rows` rows choose in a layer, expected.
double DistinctExperts(int64_t n, int64_t per_row, int64_t rows) {
  const auto all = static_cast<double>(n);
  const double share = static_cast<double>(per_row) / all;
  return all * (1 - std::pow(1 - share, static_cast<double>(rows)));
}

int64_t CacheBytes(const ModelConfig& c, const KvShape& shape, int64_t rows, int64_t context) {
  const int64_t end = context + rows;
  int64_t bytes = 0;
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    bytes += std::min(end, shape.window + rows - 1) * shape.window_row_bytes;
    const int ratio = c.compress_ratios[static_cast<size_t>(layer)];
    if (ratio == 0) continue;
    const int64_t visible = end / ratio;
    bytes += std::min(visible, rows * c.index_topk) * shape.compressed_row_bytes;
    if (!c.is_index_source(layer)) continue;
    const int64_t most =
        c.uses_candidates(layer) ? c.candidate_topk_blocks * c.candidate_block_size : visible;
    bytes += std::min(visible, most) * shape.index_row_bytes;
  }
  return bytes;
}

}  // namespace

StepBytes::StepBytes(const ModelConfig& config, const KvShape& shape) : c_(config), shape_(shape) {
  for (const TensorSpec& spec : ShapeTable(config)) {
    if (IsReadByEveryStep(spec)) dense_ += spec.bytes();
    if (spec.part == Part::kExperts) experts_ += spec.bytes();
    if (spec.name == "head.weight") head_ = spec.bytes();
    if (spec.part == Part::kMtp && spec.rank == 2) AddStageTensor(spec);
  }
}

void StepBytes::AddStageTensor(const TensorSpec& spec) {
  const auto has = [&spec](const char* part) { return spec.name.find(part) != std::string::npos; };
  if (has("markov_head.embed")) return;  // one row a token
  if (has("markov_head.head"))
    transition_ += spec.bytes();
  else if (has("ffn.experts."))
    stage_experts_ += spec.bytes();
  else if (!has("main_proj"))
    stages_ += spec.bytes();
  if (has("main_proj") || has("attn.wkv")) draft_rows_ += spec.bytes();
}

double StepBytes::operator()(int64_t rows, int64_t context) const {
  return Step(rows, context, DistinctExperts(c_.n_routed_experts, c_.num_experts_per_tok, rows));
}

double StepBytes::WithOverlap(int64_t rows, int64_t context, double overlap) const {
  const double distinct = static_cast<double>(c_.num_experts_per_tok) *
                          (1 + static_cast<double>(rows - 1) * (1 - overlap));
  return Step(rows, context, std::min(distinct, static_cast<double>(c_.n_routed_experts)));
}

double StepBytes::Step(int64_t rows, int64_t context, double distinct) const {
  const auto tables = static_cast<int64_t>(c_.engram_layer_ids.size()) * c_.engram_columns() *
                      (c_.engram_head_dim + c_.engram_head_dim / 32);
  return static_cast<double>(dense_) +
         static_cast<double>(experts_) * distinct / static_cast<double>(c_.n_routed_experts) +
         static_cast<double>(rows * (c_.hidden_size * 2 + tables) +
                             CacheBytes(c_, shape_, rows, context));
}

double StepBytes::Draft(int64_t n_seqs) const {
  if (c_.num_nextn_predict_layers == 0) return 0;
  const double distinct = DistinctExperts(c_.dspark_n_routed_experts, c_.dspark_num_experts_per_tok,
                                          n_seqs * c_.dspark_block_size);
  return static_cast<double>(stages_ + head_ + c_.dspark_block_size * transition_) +
         static_cast<double>(stage_experts_) * distinct /
             static_cast<double>(c_.dspark_n_routed_experts);
}

}  // namespace deepinfer
