// Selection of compressed rows by the index source layers (spec 01 section 6).
#include <cmath>

#include "model/parts.h"

namespace deepinfer {

namespace {

Candidates ModeOf(const ModelConfig& c, int layer) {
  if (layer == c.candidate_source_layer_id) return Candidates::kWrite;
  return c.uses_candidates(layer) ? Candidates::kRead : Candidates::kNone;
}

}  // namespace

void AddIndexer(const StepContext& s, int layer, const float* x, const float* qr) {
  const IndexerWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].attn.indexer;
  const int64_t heads = s.c.index_n_heads, dim = s.c.index_head_dim;
  const int ratio = s.c.ratio(layer);
  const auto mark = s.b.memory().Save();
  float* q = s.b.Temp<float>("indexer.q", s.rows() * heads * dim);
  float* weights = s.b.Temp<float>("indexer.weights", s.rows() * heads);

  s.Linear("indexer.wq_b", s.Quantised("indexer.quant_qr", qr, s.c.q_lora_rank), w.wq_b, q);
  s.Rope("indexer.rope_q", q, heads, dim, s.yarn, false);
  if (s.num.index_fp4) {
    s.b.Add("indexer.quant_q", s.k.quant_rows,
            QuantRowsArgs{.n_rows = s.n_rows(),
                          .x = q,
                          .y = q,
                          .cols = static_cast<int32_t>(heads * dim),
                          .format = RowFormat::kFp4Block32,
                          .fp8_max = 0});
  }
  s.Linear("indexer.weights_proj", x, w.weights_proj, weights);

  IndexSelectArgs a{};
  a.n_rows = s.n_rows();
  a.q = q;
  a.weights = weights;
  a.positions = s.in->positions;
  a.row_seqs = s.in->row_seqs;
  a.keys = s.Paged(s.m.kv.index_rows(s.c.kv_owner(layer)), s.index_format(), ratio);
  a.heads = static_cast<int32_t>(heads);
  a.dim = static_cast<int32_t>(dim);
  a.topk = static_cast<int32_t>(s.c.index_topk);
  a.ratio = ratio;
  a.weight_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)) /
                                      std::sqrt(static_cast<double>(heads)));
  a.round = s.num.bf16;
  a.round_scores = s.num.index_scores_bf16;
  a.mode = ModeOf(s.c, layer);
  a.block_size = static_cast<int32_t>(s.c.candidate_block_size);
  a.candidate_blocks = static_cast<int32_t>(s.c.candidate_topk_blocks);
  a.candidates = s.candidates;
  a.n_candidates = s.n_candidates;
  a.selected = s.selected;
  a.n_selected = s.n_selected;
  a.scratch = reinterpret_cast<uint8_t*>(s.scratch);
  a.scratch_stride = s.scratch_stride * 4;
  s.b.Add("indexer.select", s.k.index_select, a);
  s.b.AddUncounted("indexer.merge", s.k.index_merge, a);
  s.b.AddProbe(LayerName(layer, "n_selected"), s.n_selected, s.n_rows(), 1);
  s.b.AddProbe(LayerName(layer, "selected"), s.selected, s.n_rows(), s.c.index_topk);
  s.b.memory().Restore(mark);
}

}  // namespace deepinfer
