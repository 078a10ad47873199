// Engram: rows looked up by hashed n-grams, gated into the residual streams (spec 04 section 5).
#include "model/parts.h"

namespace deepinfer {

namespace {

// e [rows, width]: the rows of the table, one behind the other.
void AddGather(const StepContext& s, int layer, const int64_t* row_ids, float* e) {
  const EngramWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].engram;
  s.b.Add("engram.gather", s.k.engram_gather,
          EngramGatherArgs{.n_rows = s.n_rows(),
                           .row_ids = row_ids,
                           .table = w.embed,
                           .y = e,
                           .columns = static_cast<int32_t>(s.c.engram_columns()),
                           .dim = static_cast<int32_t>(s.c.engram_head_dim),
                           .layer = layer,
                           .round = s.num.bf16,
                           .fault = s.m.fault});
}

// The same over ranks that hold some rows each.
void AddOwnRows(const StepContext& s, int layer, const int64_t* row_ids, float* e) {
  const int64_t columns = s.c.engram_columns(), width = columns * s.c.engram_head_dim;
  const Ranks& ranks = *s.m.ranks;
  uint16_t* own = s.b.Temp<uint16_t>("engram.own", s.rows() * width);
  s.b.Add("engram.own", OwnRows<int64_t>,
          OwnRowsArgs<int64_t>{.n_rows = s.n_rows(),
                               .ids = row_ids,
                               .columns = columns,
                               .table = s.m.weights.layers[static_cast<size_t>(layer)].engram.embed,
                               .first = ranks.layout.EngramRows(layer, ranks.rank).begin,
                               .y = own,
                               .fault = s.m.fault,
                               .layer = layer});
  s.Merge("engram.merge", &Ranks::world, own, 2 * width, s.all_rows());
  s.b.Add("engram.widen", WidenRows,
          WidenRowsArgs{.n_rows = s.n_rows(), .x = own, .y = e, .cols = width});
}

}  // namespace

void AddEngram(const StepContext& s, int layer) {
  const EngramWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].engram;
  const int64_t n_streams = s.c.hc_mult, hidden = s.c.hidden_size, columns = s.c.engram_columns();
  const int64_t width = columns * s.c.engram_head_dim;
  const auto mark = s.b.memory().Save();
  float* e = s.b.Temp<float>("engram.rows", s.rows() * width);
  float* kv = s.b.Temp<float>("engram.kv", s.rows() * (n_streams + 1) * hidden);
  float* gate = s.b.Temp<float>("engram.gate", s.rows() * n_streams);
  int64_t* row_ids = s.in->engram_rows + s.c.engram_index(layer) * s.in->max_rows * columns;

  if (s.m.ranks != nullptr && s.m.ranks->layout.cuts_engram())
    AddOwnRows(s, layer, row_ids, e);
  else
    AddGather(s, layer, row_ids, e);
  s.b.AddProbe(LayerName(layer, "engram_rows"), row_ids, s.n_rows(), columns);
  s.Quantise("engram.quant", e, width, Start::kAfterAll);
  s.Linear("engram.wkv", e, w.wkv, kv, {});
  s.b.Add("engram.gate", s.k.engram_gate,
          EngramGateArgs{.n_rows = s.n_rows(),
                         .streams = s.streams,
                         .kv = kv,
                         .q_weight = w.q_weight,
                         .k_weight = w.k_weight,
                         .dead = s.in->dead,
                         .gate = gate,
                         .n_streams = static_cast<int32_t>(n_streams),
                         .hidden = static_cast<int32_t>(hidden),
                         .eps = s.c.rms_norm_eps,
                         .round = s.num.bf16});
  s.b.AddProbe(LayerName(layer, "engram_gate"), gate, s.n_rows(), n_streams);
  s.b.memory().Restore(mark);
}

}  // namespace deepinfer
