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
  Range heads() const { return At(layout.heads(), attention_rank()); }
  Range low() const { return At(layout.low(), attention_rank()); }
  Range out() const { return At(layout.out(), attention_rank()); }
  Range group_columns() const { return At(layout.group_columns(), group_rank()); }
};

// Comm::Merge of x: `front` words and then [rows, cols].
struct MergeWordsArgs {
  Comm* comm;
  const int32_t* n_rows;
  float* x;
  int64_t cols;
  int64_t front;
};
void MergeWords(const MergeWordsArgs& a, Work w);

// Comm::Gather of x [rows, cols].
struct GatherColumnsArgs {
  Comm* comm;
  const int32_t* n_rows;
  float* x;
  int64_t cols;
  const Cuts* cuts;
};
void GatherColumns(const GatherColumnsArgs& a, Work w);

// y[r] = table[ids[r] - first], zeros for ids of other ranks.
struct EmbedOwnArgs {
  const int32_t* n_rows;
  const int32_t* ids;
  WeightView table;  // bf16 [words of this rank, hidden]
  int64_t first;
  float* y;
};
void EmbedOwn(const EmbedOwnArgs& a, Work w);

// What EmbedArgs makes of the rows of the table: streams[r, s] = x[r], pre[r] = (1, 0, 0, ...).
struct SpreadArgs {
  const int32_t* n_rows;
  const float* x;
  float* streams;
  float* pre;
  int32_t n_streams;
  int64_t hidden;
};
void Spread(const SpreadArgs& a, Work w);

// x[:, begin of to] = own columns, as they are.
struct CopyColumnsArgs {
  const int32_t* n_rows;
  const float* x;  // [rows, to.size()]
  float* y;        // [rows, y_cols]
  int64_t y_cols;
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
// buffer of one line per row and chosen expert, a row's experts ascending, has the line of pair p.
struct OwnPairsArgs {
  const int32_t* n_rows;
  const int32_t* ids;  // [rows, topk]
  int32_t topk;
  Range own;
  ExpertPairs pairs;
  int32_t* slots;    // [max rows * topk]
  int32_t* n_slots;  // one value: rows * topk
};
void OwnPairs(const OwnPairsArgs& a, Work w);

// y[r] = sum of the topk slots of row at[r] in ascending order, as DownArgs adds them. Threads
// share columns.
struct SumSlotsArgs {
  const int32_t* n_rows;
  const int32_t* at;
  const float* slots;  // [all rows, topk, hidden]
  float* y;            // [rows, hidden]
  int32_t topk;
  int64_t hidden;
};
void SumSlots(const SumSlotsArgs& a, Work w);

}  // namespace deepinfer
