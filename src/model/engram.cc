// Engram: rows looked up by hashed n-grams, gated into the residual streams (spec 04 section 5).
#include "model/parts.h"

namespace deepinfer {

void AddEngram(const StepContext& s, int layer) {
  const EngramWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].engram;
  const int64_t n_streams = s.c.hc_mult, hidden = s.c.hidden_size, columns = s.c.engram_columns();
  const int64_t width = columns * s.c.engram_head_dim;
  const auto mark = s.b.memory().Save();
  float* e = s.b.Temp<float>("engram.rows", s.rows() * width);
  float* kv = s.b.Temp<float>("engram.kv", s.rows() * (n_streams + 1) * hidden);
  float* gate = s.b.Temp<float>("engram.gate", s.rows() * n_streams);
  int64_t* row_ids = s.in->engram_rows + s.c.engram_index(layer) * s.in->max_rows * columns;

  s.b.Add("engram.gather", s.k.engram_gather,
          EngramGatherArgs{.n_rows = s.n_rows(),
                           .row_ids = row_ids,
                           .table = w.embed,
                           .y = e,
                           .columns = static_cast<int32_t>(columns),
                           .dim = static_cast<int32_t>(s.c.engram_head_dim),
                           .layer = layer,
                           .round = s.num.bf16,
                           .fault = s.m.fault});
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
