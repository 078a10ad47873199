// Compressed rows and index keys, written by the layers that own a cache (spec 01 section 5.3).
#include "model/parts.h"

namespace deepinfer {

namespace {

// Ratio 2: raw rows go to the ring of open groups; every group completed by this step is pooled.
void AddPooled(const StepContext& s, int layer, const CompressorWeights& w, const float* x,
               float* latent) {
  const int64_t dim = s.c.head_dim;
  const auto mark = s.b.memory().Save();
  float* raw = s.b.Temp<float>("compressor.raw", s.rows() * dim);
  const auto store = [&](const char* product, const char* name, const WeightView& weight,
                         float* ring) {
    s.Linear(product, x, weight, raw, {.exact = true});
    s.b.Add(name, s.k.store_rows,
            StoreRowsArgs{.n_rows = s.n_rows(),
                          .x = raw,
                          .slots = s.in->raw_slots,
                          .cache = reinterpret_cast<uint8_t*>(ring),
                          .cols = static_cast<int32_t>(dim),
                          .format = RowFormat::kF32,
                          .fp8_max = 0});
  };
  store("compressor.wkv", "compressor.store_kv", w.wkv, s.m.kv.raw_kv(layer));
  store("compressor.wgate", "compressor.store_score", w.wgate, s.m.kv.raw_score(layer));
  s.b.memory().Restore(mark);
  s.b.Add("compressor.pool", s.k.pool,
          PoolArgs{.n_groups = &s.in->n_groups[2],
                   .group_rows = s.in->group_rows[2],
                   .positions = s.in->positions,
                   .row_slots = s.in->row_slots,
                   .kv = s.m.kv.raw_kv(layer),
                   .score = s.m.kv.raw_score(layer),
                   .y = latent,
                   .ring = static_cast<int32_t>(s.m.kv.shape().raw_ring()),
                   .cols = static_cast<int32_t>(dim),
                   .round = s.num.bf16});
}

void AddStore(const StepContext& s, const char* name, const float* x, int64_t cols, int ratio,
              uint8_t* cache, RowFormat format) {
  s.b.Add(name, s.k.store_rows,
          StoreRowsArgs{.n_rows = &s.in->n_groups[ratio],
                        .x = x,
                        .slots = s.in->group_slots[ratio],
                        .cache = cache,
                        .cols = static_cast<int32_t>(cols),
                        .format = format,
                        .fp8_max = s.num.fp8_max});
}

}  // namespace

void AddCompressor(const StepContext& s, int layer, const float* x) {
  const CompressorWeights& w = s.m.weights.layers[static_cast<size_t>(layer)].attn.compressor;
  const int ratio = s.c.ratio(layer);
  const int64_t dim = s.c.head_dim, key_dim = s.c.index_head_dim;
  const int32_t* n = &s.in->n_groups[ratio];
  const auto mark = s.b.memory().Save();
  float* latent = s.b.Temp<float>("compressor.latent", s.rows() * dim);
  float* key = s.b.Temp<float>("compressor.key", s.rows() * key_dim);

  if (ratio == 1) {
    s.Linear("compressor.wkv", x, w.wkv, latent);
  } else {
    AddPooled(s, layer, w, x, latent);
  }
  s.RmsNorm("compressor.norm", latent, w.norm, latent, dim, n);

  // The index key is taken from the latent before its rotation.
  s.Linear("indexer.wk", latent, w.wk, key, {.n_rows = n});
  s.RmsNorm("indexer.k_norm", key, w.k_norm, key, key_dim, n);
  s.Rope("indexer.rope_k", key, 1, key_dim, s.group[ratio], false, n, s.in->group_rows[ratio]);
  AddStore(s, "indexer.store_key", key, key_dim, ratio, s.m.kv.index_rows(layer), s.index_format());

  s.Rope("compressor.rope", latent, 1, dim, s.group[ratio], false, n, s.in->group_rows[ratio]);
  AddStore(s, "compressor.store", latent, dim, ratio, s.m.kv.compressed_rows(layer),
           s.compressed_format());
  s.b.memory().Restore(mark);
}

}  // namespace deepinfer
