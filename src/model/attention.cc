// Attention sublayer (spec 01 section 5).
#include <cmath>
#include <optional>

#include "model/parts.h"

namespace deepinfer {

void AddWindowRows(const StepContext& s, int layer, const RopeTables& rope, const float* kv,
                   Start start) {
  s.b.Add("attn.store_window", s.k.store_rows,
          StoreRowsArgs{.n_rows = s.n_rows(),
                        .x = kv,
                        .slots = s.in->window_slots,
                        .cache = s.m.kv.window_rows(layer),
                        .cols = static_cast<int32_t>(s.c.head_dim),
                        .format = WindowFormat(s.num),
                        .fp8_max = s.num.fp8_max,
                        .norm_weight = s.m.weights.layers[static_cast<size_t>(layer)].attn.kv_norm,
                        .eps = s.c.rms_norm_eps,
                        .rope = s.Rotation(rope),
                        .round = s.num.bf16},
          start);
}

namespace {

// The ranks that share the heads, or null.
const Ranks* HeadRanks(const StepContext& s) {
  return s.m.ranks != nullptr && s.m.ranks->layout.attention_size() > 1 ? s.m.ranks : nullptr;
}

int64_t OwnHeads(const StepContext& s) {
  return HeadRanks(s) != nullptr ? s.m.ranks->heads().size() : s.c.num_attention_heads;
}

// The rows of a draft block see each other and the window before the block.
int64_t VisibleWindow(const ModelConfig& c, int layer) {
  return c.sliding_window + (c.is_draft_stage(layer) ? c.dspark_block_size : 0);
}

void AddSparseAttention(const StepContext& s, int layer, const AttentionWeights& w, const float* q,
                        float* o) {
  const KvShape& shape = s.m.kv.shape();
  AttentionArgs a{};
  a.n_rows = s.n_rows();
  a.q = q;
  a.o = o;
  a.positions = s.in->window_ends;
  a.row_seqs = s.in->row_seqs;
  a.row_slots = s.in->row_slots;
  a.window_rows = s.m.kv.window_rows(layer);
  a.window_format = WindowFormat(s.num);
  a.ring = static_cast<int32_t>(shape.ring());
  a.window = static_cast<int32_t>(VisibleWindow(s.c, layer));
  const int ratio = s.c.ratio(layer);
  if (ratio > 0) {
    a.compressed =
        s.Paged(s.m.kv.compressed_rows(s.c.kv_owner(layer)), CompressedFormat(s.num), ratio);
    a.selected = s.selected;
    a.n_selected = s.n_selected;
    a.topk = static_cast<int32_t>(s.c.index_topk);
  }
  a.sink = w.attn_sink;
  a.heads = static_cast<int32_t>(OwnHeads(s));
  a.head_dim = static_cast<int32_t>(s.c.head_dim);
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.c.head_dim)));
  a.round_p = s.num.probabilities_bf16;
  a.round = s.num.bf16;
  a.scratch = s.scratch;
  a.scratch_stride = s.scratch_stride;
  s.b.Add("attn.sparse", s.k.attention, a);
}

// Values carry the rotation of their keys, hence the inverse rotation; then per group of heads
// wo_a, then wo_b.
void AddOutputProjection(const StepContext& s, const AttentionWeights& w, const RopeTables& rope,
                         float* o, float* z, float* out) {
  const int64_t low = s.c.o_groups * s.c.o_lora_rank;
  s.Rope("attn.rope_inverse", o, s.c.num_attention_heads, s.c.head_dim, rope, true,
         Start::kAfterAll);
  s.Linear("attn.wo_a", o, w.wo_a, z,
           {.x_cols = s.c.num_attention_heads * s.c.head_dim,
            .group_out = s.c.o_lora_rank,
            .share_columns = true});
  s.Quantise("attn.quant_z", z, low, Start::kOnOwn);
  s.Linear("attn.wo_b", z, w.wo_b, out, {.share_columns = true});
}

// The same over the ranks that share the heads: each computes whole sums for some rows of wo_a and
// wo_b, from inputs that are gathered first.
void AddOwnProjection(const StepContext& s, const AttentionWeights& w, const RopeTables& rope,
                      const Ranks& ranks, float* o, float* z, float* out) {
  const Layout& layout = ranks.layout;
  const int64_t low = s.c.o_groups * s.c.o_lora_rank, hidden = s.c.hidden_size;
  const int64_t own_cols = OwnHeads(s) * s.c.head_dim;
  s.Rope("attn.rope_inverse", o, OwnHeads(s), s.c.head_dim, rope, true, Start::kAfterAll);
  StepContext::LinearOptions wo_a{.x_cols = own_cols, .y_cols = low, .group_out = s.c.o_lora_rank};
  if (layout.group_size() > 1) {  // all rows of wo_a that are here belong to one group
    wo_a.x_cols = layout.group_columns().back();
    wo_a.group_out = 0;
    float* group = s.b.Temp<float>("attn.group", s.rows() * wo_a.x_cols);
    s.b.Add("attn.own_columns", CopyColumns,
            CopyColumnsArgs{.n_rows = s.n_rows(),
                            .at = s.in->all_rows,
                            .x = o,
                            .y = group,
                            .y_cols = wo_a.x_cols,
                            .y_stride = wo_a.x_cols,
                            .to = ranks.group_columns()});
    s.Gather("attn.gather_group", &Ranks::group, layout.group_columns(), group, wo_a.x_cols,
             s.all_rows());
    o = group;
  }
  s.Linear("attn.wo_a", o, w.wo_a, z + ranks.low().begin, wo_a);
  s.Gather("attn.gather_low", &Ranks::attention, layout.low(), z, low, s.all_rows());
  s.Quantise("attn.quant_z", z, low, Start::kAfterAll);
  s.Linear("attn.wo_b", z, w.wo_b, out + ranks.out().begin, {.y_cols = hidden});
  s.Gather("attn.gather_out", &Ranks::attention, layout.out(), out, hidden, s.all_rows());
}

// The same with sums that are cut: each computes what its heads add to all outputs. Where several
// ranks share an output group, what enters wo_b is part of a sum and cannot be quantised as the
// sum.
void AddSummedProjection(const StepContext& s, const AttentionWeights& w, const RopeTables& rope,
                         const Ranks& ranks, float* o, float* z, float* out) {
  const bool shares_group = ranks.layout.group_size() > 1;
  const int64_t own = ranks.low().size();
  s.Rope("attn.rope_inverse", o, OwnHeads(s), s.c.head_dim, rope, true, Start::kAfterAll);
  s.Linear("attn.wo_a", o, w.wo_a, z,
           {.x_cols = OwnHeads(s) * s.c.head_dim,
            .y_cols = own,
            .group_out = shares_group ? 0 : s.c.o_lora_rank});
  if (!shares_group) s.Quantise("attn.quant_z", z, own, Start::kAfterAll);
  s.Linear("attn.wo_b", z, w.wo_b, out, {.exact = true});
  s.Sum("attn.sum", &Ranks::attention, ranks.layout.attention_size(), out, s.c.hidden_size);
}

}  // namespace

// Phases stand in the order in which their inputs are ready: those of one group share a barrier.
Start AddAttention(const StepContext& s, int layer, const float* x, const float* xq, float* out) {
  const AttentionWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].attn;
  const bool compressed = s.c.ratio(layer) > 0;
  const RopeTables& rope = compressed ? s.yarn : s.plain;
  const Ranks* ranks = HeadRanks(s);
  const int64_t heads_cols = OwnHeads(s) * s.c.head_dim, low_rank = s.c.q_lora_rank;
  const auto mark = s.b.memory().Save();
  float* low = s.b.Temp<float>("attn.low", s.rows() * low_rank);
  float* kv = s.b.Temp<float>("attn.kv", s.rows() * s.c.head_dim);
  float* qr = s.b.Temp<float>("attn.qr", s.rows() * low_rank);
  float* qr_quantised = s.QuantisedTemp("attn.qr_quantised", low_rank);
  const float* qr_in = qr_quantised != nullptr ? qr_quantised : qr;
  float* q = s.b.Temp<float>("attn.q", s.rows() * heads_cols);
  float* o = s.b.Temp<float>("attn.o", s.rows() * heads_cols);
  float* z = s.b.Temp<float>("attn.z", s.rows() * s.c.o_groups * s.c.o_lora_rank);
  std::optional<Compressor> compressor;
  std::optional<Indexer> indexer;
  if (s.c.is_kv_source(layer)) compressor.emplace(s, layer);
  if (s.c.is_index_source(layer)) indexer.emplace(s, layer);

  s.Linear("attn.wq_a", xq, w.wq_a, low, {.start = Start::kBeside});
  s.Linear("attn.wkv", xq, w.wkv, kv, {.start = Start::kBeside});
  if (compressor) compressor->AddProducts(x);
  if (indexer) indexer->AddWeights(x);

  s.RmsNorm("attn.q_norm", low, w.q_norm, qr, qr_quantised, low_rank, Start::kAfterAll);
  AddWindowRows(s, layer, rope, kv, Start::kBeside);
  if (compressor) compressor->AddRows();

  s.Linear("attn.wq_b", qr_in, w.wq_b, q, {.share_columns = true});
  s.Rope("attn.rope_q", q, OwnHeads(s), s.c.head_dim, rope, false, Start::kOnOwn);
  if (ranks == nullptr) s.b.AddProbe(LayerName(layer, "q"), q, s.n_rows(), heads_cols);
  if (indexer) indexer->AddQueries(qr_in);
  if (compressor) compressor->AddLatents();

  if (compressor) compressor->AddKeys();
  if (indexer) indexer->AddSelection();
  AddSparseAttention(s, layer, w, q, o);
  if (ranks == nullptr) {
    s.b.AddProbe(LayerName(layer, "attn_core"), o, s.n_rows(), heads_cols);
    AddOutputProjection(s, w, rope, o, z, out);
  } else if (AddsPartialSums(s)) {
    AddSummedProjection(s, w, rope, *ranks, o, z, out);
  } else {
    AddOwnProjection(s, w, rope, *ranks, o, z, out);
  }
  s.b.memory().Restore(mark);
  return ranks == nullptr ? Start::kOnOwn : Start::kAfterAll;
}

}  // namespace deepinfer
