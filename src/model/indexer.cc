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

Indexer::Indexer(const StepContext& s, int layer)
    : s_(s),
      w_(s.m.weights.layers[static_cast<size_t>(layer)].attn.indexer),
      layer_(layer),
      q_(s.b.Temp<float>("indexer.q", s.rows() * s.c.index_n_heads * s.c.index_head_dim)),
      weights_(s.b.Temp<float>("indexer.weights", s.rows() * s.c.index_n_heads)) {}

void Indexer::AddWeights(const float* x) const {
  s_.Linear("indexer.weights_proj", x, w_.weights_proj, weights_, {.start = Start::kBeside});
}

void Indexer::AddQueries(const float* qr) const {
  const int64_t heads = s_.c.index_n_heads, dim = s_.c.index_head_dim;
  s_.Linear("indexer.wq_b", qr, w_.wq_b, q_, {.share_columns = true, .start = Start::kBeside});
  s_.Rope("indexer.rope_q", q_, heads, dim, s_.yarn, false, Start::kOnOwn);
  if (!s_.num.index_fp4) return;
  s_.b.Add("indexer.quant_q", s_.k.quant_rows,
           QuantRowsArgs{.n_rows = s_.n_rows(),
                         .x = q_,
                         .y = q_,
                         .cols = static_cast<int32_t>(heads * dim),
                         .format = RowFormat::kFp4Block32,
                         .fp8_max = 0},
           Start::kOnOwn);
}

void Indexer::AddSelection() const {
  const StepContext& s = s_;
  const int64_t heads = s.c.index_n_heads, dim = s.c.index_head_dim;
  const int ratio = s.c.ratio(layer_);
  IndexSelectArgs a{};
  a.n_rows = s.n_rows();
  a.q = q_;
  a.weights = weights_;
  a.positions = s.in->positions;
  a.row_seqs = s.in->row_seqs;
  a.keys = s.Paged(s.m.kv.index_rows(s.c.kv_owner(layer_)), IndexFormat(s.num), ratio);
  a.heads = static_cast<int32_t>(heads);
  a.dim = static_cast<int32_t>(dim);
  a.topk = static_cast<int32_t>(s.c.index_topk);
  a.ratio = ratio;
  a.weight_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)) /
                                      std::sqrt(static_cast<double>(heads)));
  a.round = s.num.bf16;
  a.round_scores = s.num.index_scores_bf16;
  a.mode = ModeOf(s.c, layer_);
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
  s.b.AddProbe(LayerName(layer_, "n_selected"), s.n_selected, s.n_rows(), 1);
  s.b.AddProbe(LayerName(layer_, "selected"), s.selected, s.n_rows(), s.c.index_topk);
}

}  // namespace deepinfer
