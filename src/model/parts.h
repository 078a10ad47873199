// What the parts of the forward pass share while a plan is built. Private to model/.
#pragma once

#include <algorithm>
#include <string>

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

  float* streams = nullptr;  // [rows, S, hidden] residual streams H
  float* pre = nullptr;      // [rows, S] pre-mix left by the previous sublayer
  RopeTables plain = {}, yarn = {}, group[kMaxRatio + 1] = {};

  // Lists of the newest index source layer, read by the layers that reuse them.
  int32_t *selected = nullptr, *n_selected = nullptr;      // [rows, index_topk], [rows]
  int32_t *candidates = nullptr, *n_candidates = nullptr;  // [rows, candidate_topk_blocks], [rows]

  // Pairs of the routed experts, and "everyone is routed to expert 0" for the shared one.
  ExpertPairs routed = {}, everyone = {};

  float* scratch = nullptr;    // per thread
  int64_t scratch_stride = 0;  // floats

  const int32_t* n_rows() const { return &in->n_rows; }
  int64_t rows() const { return b.rows(); }

  // y = weight . x, rounded to bf16 where the numerics keep bf16 and `exact` is false.
  struct LinearOptions {
    const int32_t* n_rows = nullptr;  // default: all rows of the step
    int64_t piece = 0, x_cols = 0, group_out = 0;
    bool exact = false;
  };
  void Linear(const char* name, const float* x, const WeightView& w, float* y,
              const LinearOptions& o) const;
  void Linear(const char* name, const float* x, const WeightView& w, float* y) const {
    Linear(name, x, w, y, {});
  }

  void RmsNorm(const char* name, const float* x, const uint8_t* weight, float* y, int64_t cols,
               const int32_t* n_rows = nullptr) const;

  // x as input of an fp8 or fp4 weight: quantised into a new buffer, or x itself where the numerics
  // do not quantise.
  const float* Quantised(const char* name, const float* x, int64_t cols) const;

  void Rope(const char* name, float* x, int64_t heads, int64_t head_dim, const RopeTables& t,
            bool inverse, const int32_t* n_rows = nullptr,
            const int32_t* table_rows = nullptr) const;

  PagedRows Paged(const uint8_t* rows, RowFormat format, int ratio) const;

  // Sums that ranks may cut later are taken in pieces of this many columns of a matrix whose unit
  // (a group or an expert width) has `unit` columns: 128, or 32 at test sizes (spec 09 section 7).
  static int64_t PieceFor(int64_t unit) { return unit % 128 == 0 ? 128 : 32; }

  RowFormat window_format() const {
    return num.window_kv_fp8 ? RowFormat::kFp8Block32 : RowFormat::kF32;
  }
  RowFormat compressed_format() const {
    return num.compressed_kv_fp4 ? RowFormat::kFp4Block16 : RowFormat::kF32;
  }
  RowFormat index_format() const {
    return num.index_fp4 ? RowFormat::kFp4Block32 : RowFormat::kF32;
  }
};

// Each adds the phases of one part. x: [rows, hidden] normed sublayer input. Temporaries are
// released on return.
void AddEngram(const StepContext& s, int layer);
void AddBlock(const StepContext& s, int layer);
void AddAttention(const StepContext& s, int layer, const float* x, float* out);
void AddCompressor(const StepContext& s, int layer, const float* x);
void AddIndexer(const StepContext& s, int layer, const float* x, const float* qr);
void AddMoe(const StepContext& s, int layer, const float* x, float* out);

// Step buffers, rotary tables and the embedding.
void AddStart(StepContext& s);
// x [rows, hidden]: the streams collapsed with the last sublayer's pre-mix.
void AddFinalCollapse(const StepContext& s, float* x);
// One row per token that is key and value of all heads, into the window ring of a layer or stage.
// xq: what its wkv reads.
void AddWindowRows(const StepContext& s, int layer, const RopeTables& rope, const float* xq);

// features [rows, draft_features()]: the mean of the streams that enter a target layer, after its
// Engram.
void AddTap(const StepContext& s, int layer, float* features);
// The window rows of all draft stages.
void AddDraftRows(const StepContext& s, const float* features);

// "layers.3.attn_in"
std::string LayerName(int layer, const char* what);

}  // namespace deepinfer
