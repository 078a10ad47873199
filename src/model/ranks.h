// What a step does besides, when several ranks share it (docs/ranks.md): exchanges, which thread 0
// makes while the others wait, and the small operations around them.
#pragma once

#include <cstdint>

#include "config/layout.h"
#include "ops/moe.h"
#include "ops/op.h"
#include "parallel/comm.h"

namespace deepinfer {

// The place of this rank. The communicators may be null in a plan that never runs.
struct Ranks {
  const Layout& layout;
  int rank;
  Comm* world;
  Comm* batch;      // those that run one batch
  Comm* attention;  // those that share the heads
  Comm* group;      // those that share an output group

  int batch_rank() const { return rank % layout.batch_size(); }
  int attention_rank() const { return layout.attention_rank(rank); }
  int group_rank() const { return rank % layout.group_size(); }
  Range experts(int layer) const { return layout.experts(layer, rank); }
  Range vocab() const { return At(layout.vocab(), batch_rank()); }
  Range shared_inner() const { return At(layout.shared_inner(), batch_rank()); }
  Range shared_out() const { return At(layout.shared_out(), batch_rank()); }
  Range heads() const { return At(layout.heads(), attention_rank()); }
  Range low() const { return layout.LowOf(attention_rank()); }
  Range out() const { return At(layout.out(), attention_rank()); }
  Range group_columns() const { return At(layout.group_columns(), group_rank()); }
};

// Comm::Merge of x: `front` words and then n_rows rows of `words` words.
struct MergeWordsArgs {
  Comm* comm;
  const int32_t* n_rows;
  void* x;
  int64_t words;
  int64_t front;
};
void MergeWords(const MergeWordsArgs& a, Work w);

// Comm::Sum of x [rows, cols].
struct SumRowsArgs {
  Comm* comm;
  const int32_t* n_rows;
  float* x;
  int64_t cols;
};
void SumRows(const SumRowsArgs& a, Work w);

// Rounds x [rows, cols] to bf16 if `round`. Threads share columns.
struct RoundRowsArgs {
  const int32_t* n_rows;
  float* x;
  int64_t cols;
  bool round;
};
void RoundRows(const RoundRowsArgs& a, Work w);

// Comm::Gather of x [rows, cols].
struct GatherColumnsArgs {
  Comm* comm;
  const int32_t* n_rows;
  float* x;
  int64_t cols;
  const Cuts* cuts;
};
void GatherColumns(const GatherColumnsArgs& a, Work w);

// One row of a kBf16 or kFp8Row32 table in bf16; false: one of its scales is NaN.
bool DecodeBf16Row(const WeightView& table, int64_t row, uint16_t* y);

// y[i] = table[ids[i] - first] in bf16, zeros for ids of other ranks. Rows of a kFp8Row32 table are
// decoded, exact in bf16 barring under- and overflow; a NaN scale is reported as a fault.
template <class Id>
struct OwnRowsArgs {
  const int32_t* n_rows;
  const Id* ids;     // [rows, columns]
  int64_t columns;   // ids of a row
  WeightView table;  // kBf16 or kFp8Row32 [rows of this rank, cols]
  int64_t first;     // of the rows of this rank
  uint16_t* y;       // bf16 [rows, columns, cols]
  Fault* fault;      // of Engram rows
  int32_t layer;
};
template <class Id>
void OwnRows(const OwnRowsArgs<Id>& a, Work w);

// y = x, bf16 to float, [rows, cols]. Threads share columns.
struct WidenRowsArgs {
  const int32_t* n_rows;
  const uint16_t* x;
  float* y;
  int64_t cols;
};
void WidenRows(const WidenRowsArgs& a, Work w);

// y[at[r], to] = x[r], as it is. Threads share columns of y.
struct CopyColumnsArgs {
  const int32_t* n_rows;
  const int32_t* at;
  const float* x;  // [rows, to.size()]
  float* y;        // [all rows, y_stride], of which y_cols columns
  int64_t y_cols, y_stride;
  Range to;
};
void CopyColumns(const CopyColumnsArgs& a, Work w);

// y[to[r]] = x[r], and zeros in the other of n_all rows: this batch's part of a Merge.
struct PlaceRowsArgs {
  const int32_t *n_rows, *n_all;
  const int32_t* to;
  const void* x;  // [rows, cols] words
  void* y;
  int64_t cols;
};
void PlaceRows(const PlaceRowsArgs& a, Work w);

// Behind GroupPairs, on the same thread: keeps the pairs of the experts `own`. slots[p]: where a
// buffer of row_slots lines a row, the first for the row's experts, ascending, has that of pair p.
struct OwnPairsArgs {
  const int32_t* n_rows;
  const int32_t* ids;  // [rows, topk]
  int32_t topk, row_slots;
  Range own;
  ExpertPairs pairs;
  int32_t* slots;    // [max rows * topk]
  int32_t* n_slots;  // one value: rows * row_slots
};
void OwnPairs(const OwnPairsArgs& a, Work w);

// y[r] = sum of the slots of row at[r] in ascending order, as DownArgs adds them, and AddArgs the
// shared expert's behind them; rounded to bf16 if `round`. Threads share columns.
struct SumSlotsArgs {
  const int32_t* n_rows;
  const int32_t* at;
  const float* slots;  // [all rows, row_slots, hidden]
  float* y;            // [rows, hidden]
  int32_t row_slots;
  int64_t hidden;
  bool round;
};
void SumSlots(const SumSlotsArgs& a, Work w);

}  // namespace deepinfer
