// Compressed rows and index keys, written by the layers that own a cache (spec 01 section 5.3).
#include "model/parts.h"

namespace deepinfer {

Compressor::Compressor(const StepContext& s, int layer)
    : s_(s),
      w_(s.m.weights.layers[static_cast<size_t>(layer)].attn.compressor),
      layer_(layer),
      ratio_(s.c.ratio(layer)),
      kv_(s.b.Temp<float>("compressor.kv", s.rows() * s.c.head_dim)),
      score_(ratio_ == 2 ? s.b.Temp<float>("compressor.score", s.rows() * s.c.head_dim) : nullptr),
      pooled_(ratio_ == 2 ? s.b.Temp<float>("compressor.pooled", s.rows() * s.c.head_dim) : kv_),
      latent_(s.b.Temp<float>("compressor.latent", s.rows() * s.c.head_dim)),
      key_(s.b.Temp<float>("compressor.key", s.rows() * s.c.index_head_dim)) {}

// Ratio 1: an ordinary rounded product is the latent before its norm. Ratio 2: exact raw rows.
void Compressor::AddProducts(const float* x) const {
  s_.Linear("compressor.wkv", x, w_.wkv, kv_, {.exact = ratio_ == 2, .start = Start::kBeside});
  if (ratio_ == 2)
    s_.Linear("compressor.wgate", x, w_.wgate, score_, {.exact = true, .start = Start::kBeside});
}

// Ratio 2: raw rows go to the ring of open groups.
void Compressor::AddRows() const {
  if (ratio_ == 1) {
    s_.RmsNorm("compressor.norm", kv_, w_.norm, latent_, nullptr, s_.c.head_dim, Start::kBeside,
               &s_.in->n_groups[1]);
    return;
  }
  const auto store = [&](const char* name, const float* x, float* ring) {
    s_.b.Add(name, s_.k.store_rows,
             StoreRowsArgs{.n_rows = s_.n_rows(),
                           .x = x,
                           .slots = s_.in->raw_slots,
                           .cache = reinterpret_cast<uint8_t*>(ring),
                           .cols = static_cast<int32_t>(s_.c.head_dim),
                           .format = RowFormat::kF32,
                           .fp8_max = 0},
             Start::kBeside);
  };
  store("compressor.store_kv", kv_, s_.m.kv.raw_kv(layer_));
  store("compressor.store_score", score_, s_.m.kv.raw_score(layer_));
}

// Ratio 2: every group completed by this step is pooled.
void Compressor::AddLatents() const {
  if (ratio_ == 1) return AddKeyProduct(Start::kBeside);
  s_.b.Add("compressor.pool", s_.k.pool,
           PoolArgs{.n_groups = &s_.in->n_groups[2],
                    .group_rows = s_.in->group_rows[2],
                    .positions = s_.in->positions,
                    .row_slots = s_.in->row_slots,
                    .kv = s_.m.kv.raw_kv(layer_),
                    .score = s_.m.kv.raw_score(layer_),
                    .y = pooled_,
                    .ring = static_cast<int32_t>(s_.m.kv.shape().raw_ring()),
                    .cols = static_cast<int32_t>(s_.c.head_dim),
                    .round = s_.num.bf16},
           Start::kBeside);
}

void Compressor::AddKeys() const {
  if (ratio_ == 2) {
    s_.RmsNorm("compressor.norm", pooled_, w_.norm, latent_, nullptr, s_.c.head_dim,
               Start::kAfterAll, &s_.in->n_groups[2]);
    AddKeyProduct(Start::kAfterAll);
  }
  AddStore("indexer.store_key", key_, s_.c.index_head_dim, s_.m.kv.index_rows(layer_),
           IndexFormat(s_.num), w_.k_norm, Start::kAfterAll);
}

// The index key is taken from the latent before its rotation, the stored row after it.
void Compressor::AddKeyProduct(Start start) const {
  s_.Linear("indexer.wk", latent_, w_.wk, key_,
            {.n_rows = &s_.in->n_groups[ratio_], .start = start});
  AddStore("compressor.store", latent_, s_.c.head_dim, s_.m.kv.compressed_rows(layer_),
           CompressedFormat(s_.num), nullptr, Start::kBeside);
}

void Compressor::AddStore(const char* name, const float* x, int64_t cols, uint8_t* cache,
                          RowFormat format, const uint8_t* norm, Start start) const {
  s_.b.Add(name, s_.k.store_rows,
           StoreRowsArgs{.n_rows = &s_.in->n_groups[ratio_],
                         .x = x,
                         .slots = s_.in->group_slots[ratio_],
                         .cache = cache,
                         .cols = static_cast<int32_t>(cols),
                         .format = format,
                         .fp8_max = s_.num.fp8_max,
                         .norm_weight = norm,
                         .eps = s_.c.rms_norm_eps,
                         .rope = s_.Rotation(s_.group[ratio_], s_.in->group_rows[ratio_]),
                         .round = s_.num.bf16},
           start);
}

}  // namespace deepinfer
