// What the parts of the forward pass share while a plan is built. Private to model/.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "model/forward.h"

namespace deepinfer {

// cos and sin of every row's angles, [rows, qk_rope_head_dim / 2].
struct RopeTables {
  const float *cos, *sin;
};

// Buffers that live through the whole step, and the small helpers every part uses.
struct StepContext {
  const ForwardContext& m;
  const ModelConfig& c;
  const Numerics& num;
  const KernelTable& k;
  const StepInputs* in;
  PlanBuilder& b;

  float* streams = nullptr;    // [rows, S, hidden] residual streams H
  float* pre = nullptr;        // [rows, S] pre-mix left by the previous sublayer
  float* collapsed = nullptr;  // [rows, hidden] collapsed streams, the next sublayer's input
  float* raw_mix = nullptr;    // [rows, (2 + S) S] products for its mix
  RopeTables plain = {}, yarn = {}, group[kMaxRatio + 1] = {};

  // Lists of the newest index source layer, read by the layers that reuse them.
  int32_t *selected = nullptr, *n_selected = nullptr;      // [rows, index_topk], [rows]
  int32_t *candidates = nullptr, *n_candidates = nullptr;  // [rows, candidate_topk_blocks], [rows]

  // Pairs of the routed experts, and "everyone is routed to expert 0" for the shared one.
  ExpertPairs routed = {}, everyone = {};
  // With ranks: the routed pairs of this rank, by their lines in a buffer of one a row and expert.
  ExpertPairs slots = {};
  int32_t* n_slots = nullptr;

  float* scratch = nullptr;    // per thread
  int64_t scratch_stride = 0;  // floats

  const int32_t* counted = nullptr;  // rows that phases are for; null: all of the step

  const int32_t* n_rows() const { return counted != nullptr ? counted : &in->n_rows; }
  int64_t rows() const { return b.rows(); }

  // y = weight . x, rounded to bf16 where the numerics keep bf16 and `exact` is false.
  struct LinearOptions {
    const int32_t* n_rows = nullptr;  // default: all rows of the step
    int64_t x_cols = 0, y_cols = 0, group_out = 0;
    bool exact = false;
    bool share_columns = false;  // a kOnOwn phase follows, or the columns of the phase before count
    Start start = Start::kAfterAll;
  };
  void Linear(const char* name, const float* x, const WeightView& w, float* y,
              const LinearOptions& o) const;

  // quantised: also y as input of an fp8 or fp4 weight (see QuantisedTemp), or null. y != x.
  void RmsNorm(const char* name, const float* x, const uint8_t* weight, float* y, float* quantised,
               int64_t cols, Start start, const int32_t* n_rows = nullptr) const;

  // A buffer for x quantised as input of an fp8 or fp4 weight, or null where the numerics do not
  // quantise; such weights then read x itself.
  float* QuantisedTemp(const char* name, int64_t cols, bool wanted = true) const {
    return wanted && num.fp8_activations ? b.Temp<float>(name, rows() * cols) : nullptr;
  }

  // Quantises x in place as input of an fp8 or fp4 weight, if the numerics do.
  void Quantise(const char* name, float* x, int64_t cols, Start start) const;

  RowRotation Rotation(const RopeTables& t, const int32_t* table_rows = nullptr) const {
    return {t.cos, t.sin, table_rows, static_cast<int32_t>(c.qk_rope_head_dim)};
  }
  void Rope(const char* name, float* x, int64_t heads, int64_t head_dim, const RopeTables& t,
            bool inverse, Start start) const;

  // Do ranks run several batches side by side? What is computed for the rows of all of them has
  // `world` rows.
  bool batches() const { return m.ranks != nullptr && m.ranks->layout.n_batches() > 1; }
  const int32_t* n_world_rows() const { return &in->n_world_rows; }

  // Exchanges of the ranks, see Comm. What follows begins behind a barrier. n_rows: of x, at most
  // `most`.
  struct ExchangeRows {
    const int32_t* n_rows;
    int64_t most;
  };
  void Merge(const char* name, Comm* Ranks::*comm, void* x, int64_t row_bytes, ExchangeRows rows,
             int64_t front = 0) const;
  void Gather(const char* name, Comm* Ranks::*comm, const Cuts& cuts, float* x, int64_t cols,
              ExchangeRows rows) const;
  // x [rows, cols]: the sum of what the ranks have, rounded as results of linears are. A kOnOwn
  // phase may follow.
  void Sum(const char* name, Comm* Ranks::*comm, int size, float* x, int64_t cols) const;
  ExchangeRows all_rows() const { return {n_rows(), rows()}; }

  // Rows of this batch, n of at most `most`, to their places `to` among the n_all of all batches.
  struct SharedRows {
    const int32_t *n, *n_all, *to;
    int64_t most;
  };
  struct Words {
    const void* x;  // [n, cols] words of 4 bytes
    int64_t cols;
  };
  // The rows of all batches, on all ranks by one exchange: for every part [most, cols], but the
  // last ends with the last row.
  std::vector<float*> ShareRows(const char* name, const SharedRows& rows,
                                const std::vector<Words>& parts) const;

  PagedRows Paged(const uint8_t* rows, RowFormat format, int ratio) const;
};

// Do ranks share sums of this model, or only whole values?
inline bool AddsPartialSums(const StepContext& s) {
  return s.m.ranks != nullptr && s.m.ranks->layout.adds_partial_sums();
}

// A buffer as a table of rows.
inline WeightView Bf16Table(const uint16_t* x, int64_t rows, int64_t cols) {
  return {reinterpret_cast<const uint8_t*>(x), nullptr, DType::kBf16, rows, cols, 2 * cols, 0, 0};
}

// Each adds the phases of one part. Temporaries are released on return, except those that phases of
// the same group may still use: such buffers live in StepContext.
void AddEngram(const StepContext& s, int layer);

// collapsed = sum_s pre[s] streams[s].
void AddCollapse(const StepContext& s, const char* name, const float* pre, Start start);

// Everything behind the collapse for the layer's attention. The last phase leaves columns of
// the streams with their thread.
void AddBlock(const StepContext& s, int layer);

// x: [rows, hidden] normed sublayer input, xq: quantised as input of fp8 weights, or x. The last
// phase leaves columns of `out` with their thread, unless AddAttention returns kAfterAll: how the
// next may start. The first runs beside the sublayer's mix.
Start AddAttention(const StepContext& s, int layer, const float* x, const float* xq, float* out);
void AddMoe(const StepContext& s, int layer, const float* x, const float* xq, float* out);

// The compressor of a kv source layer, cut where its phases can stand beside those of the queries.
class Compressor {
 public:
  Compressor(const StepContext& s, int layer);  // books its buffers
  void AddProducts(const float* x) const;       // kBeside: with what reads x
  void AddRows() const;                         // kBeside: with what reads these products
  void AddLatents() const;                      // kBeside: with what reads AddRows
  void AddKeys() const;                         // the rest, in groups of its own

 private:
  void AddStore(const char* name, const float* x, int64_t cols, uint8_t* cache, RowFormat format,
                const uint8_t* norm, Start start) const;
  void AddKeyProduct(Start start) const;

  const StepContext& s_;
  const CompressorWeights& w_;
  const int layer_, ratio_;
  float *kv_, *score_;  // [rows, head_dim] products; score only for ratio 2
  float* pooled_;       // [groups, head_dim] before the norm
  float* latent_;       // [groups, head_dim] after it
  float* key_;          // [groups, index_head_dim]
};

// The query side of an index source layer, cut in the same way.
class Indexer {
 public:
  Indexer(const StepContext& s, int layer);
  void AddWeights(const float* x) const;   // kBeside: with what reads x
  void AddQueries(const float* qr) const;  // kBeside: with what reads qr, quantised
  void AddSelection() const;               // groups of its own

 private:
  const StepContext& s_;
  const IndexerWeights& w_;
  const int layer_;
  float *q_, *weights_;
};

// y [rows, vocab_size] = w . x, exact, for a weight w with a row for every word, which ranks cut.
// Returns how a phase may start that shares the columns of y, as `options` says this one does.
// most: rows of x.
Start AddWords(const StepContext& s, const char* name, const float* x, const WeightView& w,
               float* y, int64_t most, const StepContext::LinearOptions& options);
// Step buffers, rotary tables and the embedding.
void AddStart(StepContext& s);
// One row per token that is key and value of all heads, normed and rotated into the window ring of
// a layer or stage. kv [rows, head_dim]: the product of its wkv.
void AddWindowRows(const StepContext& s, int layer, const RopeTables& rope, const float* kv,
                   Start start);

// features [rows, draft_features()]: the mean of the streams that enter a target layer, after its
// Engram. Follows their collapse.
void AddTap(StepContext s, int layer, float* features);
// The window rows of all draft stages. Quantises the features in place.
void AddDraftRows(StepContext s, float* features);

// "layers.3.attn_in"
std::string LayerName(int layer, const char* what);

}  // namespace deepinfer
