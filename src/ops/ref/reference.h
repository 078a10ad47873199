// Declarations of the scalar references; the contracts stand with the argument structs in ops/*.h.
#pragma once

#include "base/formats.h"
#include "ops/kernel_table.h"

namespace deepinfer::ref {

// Quantises `cols` values into one stored row of RowBytes(format, cols), and back.
void EncodeRow(RowFormat format, const float* x, int64_t cols, float fp8_max, uint8_t* row);
void DecodeRow(RowFormat format, const uint8_t* row, int64_t cols, float* y);

// One row of a weight as floats, scales applied; `row` counts from the start of the view.
void DecodeWeightRow(const WeightView& w, int64_t row, WeightDecode decode, float* y);

// sum_k x[k] * w[k], summed in double and rounded to float.
float Dot(const float* x, const float* w, int64_t cols);

float LoadBf16(const uint8_t* p);  // any alignment
float LoadF32(const uint8_t* p);   // any alignment

float InverseRms(const float* x, int64_t n, float eps);  // 1 / sqrt(mean(x^2) + eps)

// x holds values [begin, end) of a head, both even. Rotates those that belong to its last rope.dim.
void RotateHead(const RowRotation& rope, int64_t row, bool inverse, bool round, int64_t head_dim,
                int64_t begin, int64_t end, float* x);

inline float RoundIf(bool round, float x) { return round ? RoundBf16(x) : x; }

void Embed(const EmbedArgs& a, Work w);
void RmsNorm(const RmsNormArgs& a, Work w);
void Add(const AddArgs& a, Work w);
void QuantRows(const QuantRowsArgs& a, Work w);
void StoreRows(const StoreRowsArgs& a, Work w);
void GatherRows(const GatherRowsArgs& a, Work w);
void Linear(const LinearArgs& a, Work w);
void RopeTable(const RopeTableArgs& a, Work w);
void Rope(const RopeArgs& a, Work w);
void Mix(const MixArgs& a, Work w);
void Collapse(const CollapseArgs& a, Work w);
void Expand(const ExpandArgs& a, Work w);
void Pool(const PoolArgs& a, Work w);
void IndexSelect(const IndexSelectArgs& a, Work w);
void IndexMerge(const IndexSelectArgs& a, Work w);
void Attention(const AttentionArgs& a, Work w);
void Route(const RouteArgs& a, Work w);
void GroupPairs(const GroupPairsArgs& a, Work w);
void CheckExperts(const CheckExpertsArgs& a, Work w);
void GateUp(const GateUpArgs& a, Work w);
void Down(const DownArgs& a, Work w);
void EngramGather(const EngramGatherArgs& a, Work w);
void EngramGate(const EngramGateArgs& a, Work w);
void TopLogits(const TopLogitsArgs& a, Work w);
void Tap(const TapArgs& a, Work w);
void TransitionInput(const TransitionInputArgs& a, Work w);
void DraftChoose(const DraftTokenArgs& a, Work w);
void DraftMerge(const DraftTokenArgs& a, Work w);

}  // namespace deepinfer::ref
