// Compressed rows, index selection and sparse attention (spec 01 sections 5 and 6).
#pragma once

#include "ops/op.h"
#include "ops/rows.h"

namespace deepinfer {

// Where the rows of each sequence lie; shared by the ops below. A cache of compressed rows or index
// keys is a list of pages of rows_per_page rows; row j of sequence s is row block_table[s *
// table_stride + j / rows_per_page] * rows_per_page + j % rows_per_page of the cache.
struct PagedRows {
  const uint8_t* rows;         // the cache of one layer
  const int32_t* block_table;  // [sequences of the step, table_stride]
  int64_t table_stride;
  int32_t rows_per_page;
  RowFormat format;
};

// Pools the two raw rows of every group that a row of this step completes (ratio 2, spec 01
// section 5.3):
//   p[u, d] = softmax over the group's tokens u of score[u, d]
//   y[g, d] = sum_u p[u, d] * kv[u, d], rounded if `round`
// The raw rows lie in a ring per sequence: token t of sequence slot q is row q * ring + t % ring.
struct PoolArgs {
  const int32_t* n_groups;
  const int32_t* group_rows;  // [n_groups] row of the step that completes the group
  const int32_t* positions;   // [rows]
  const int32_t* row_slots;   // [rows] sequence slot
  const float* kv;            // ring rows [cols]
  const float* score;         // ring rows [cols]
  float* y;                   // [n_groups, cols]
  int32_t ring, cols;
  bool round;
};

enum class Candidates : uint8_t {
  kNone,   // plain top-k
  kWrite,  // also choose candidate blocks from the scores (candidate source layer); own selection
           // unaffected
  kRead,   // only rows inside the row's candidate blocks may be chosen
};

// Scores every visible index key and selects the best `topk` (spec 01 sections 6.2 to 6.6). For row
// r at position t, visible = (t + 1) / ratio keys:
//   w[h] = b(weights[r, h] * weight_scale)
//   score[j] = b( sum_h b( relu( b(q[h] . k_j) ) * w[h] ) )     b = round to bf16 if round_scores,
//   the w rounding if round
// Higher score first, then lower index; the chosen indices are written ascending. With kWrite the
// best candidate_blocks blocks of block_size rows by their best score (the newest visible block
// always, lower block first on ties) are written ascending to candidates; n_candidates = -1 says
// that all blocks are in. Streams over the keys: scratch does not grow with the context.
//
// Two phases with the same arguments, number of threads and untouched scratch: index_select, then
// index_merge. Where several threads share the keys of a row, the first leaves what each of them
// would keep in the scratch; results are complete after the second.
struct IndexSelectArgs {
  const int32_t* n_rows;
  const float* q;            // [rows, heads, dim], quantised as the keys
  const float* weights;      // [rows, heads]
  const int32_t* positions;  // [rows]
  const int32_t* row_seqs;   // [rows] sequence of the step
  PagedRows keys;
  int32_t heads, dim, topk, ratio;
  float weight_scale;
  bool round, round_scores;
  Candidates mode;
  int32_t block_size, candidate_blocks;
  int32_t* candidates;    // [rows, candidate_blocks]
  int32_t* n_candidates;  // [rows]
  int32_t* selected;      // [rows, topk]
  int32_t* n_selected;    // [rows]
  uint8_t* scratch;  // per thread: scratch + tid * scratch_stride, IndexSelectScratchBytes(...),
                     // 64-byte aligned
  int64_t scratch_stride;
};

// A scored row or block while it waits in a selection.
struct ScoredIndex {
  float score;
  int32_t index;
};

constexpr int kIndexKeyBlock = 64;        // keys scored at a time; bounds the scratch
constexpr int kIndexGroupRows = 8;        // rows that share decoded keys
constexpr int kIndexRowStateBytes = 128;  // bookkeeping of two selections

// Decoded keys, and the queries and weights of a group of rows.
static inline int64_t IndexOperandBytes(int64_t heads, int64_t dim) {
  const int64_t heads_up = (heads + 15) / 16 * 16;
  const int64_t bytes =
      kIndexKeyBlock * (dim + 32) * 4 + kIndexGroupRows * heads_up * (2 * dim + 4);
  return (bytes + 63) / 64 * 64;
}

// Two selections of a row, of up to twice what they keep.
static inline int64_t IndexRowBytes(int64_t topk, int64_t candidate_blocks) {
  const int64_t entries = 2 * (topk + candidate_blocks) * static_cast<int64_t>(sizeof(ScoredIndex));
  return (kIndexRowStateBytes + entries + 63) / 64 * 64;
}

// Per thread: operands, and the selections of two groups of rows.
static inline int64_t IndexSelectScratchBytes(int64_t heads, int64_t dim, int64_t topk,
                                              int64_t candidate_blocks) {
  return IndexOperandBytes(heads, dim) +
         2 * kIndexGroupRows * IndexRowBytes(topk, candidate_blocks);
}

// Attention of every head over the row's window and its selected compressed rows, with a sink in
// the denominator:
//   s[h, i] = fp32(q[h] . row_i) * scale;  o[h] = sum_i b(P[h, i]) row_i / (sum_i P[h, i] +
//   exp(sink[h] - m))
// Rows: window positions max(0, t - window + 1) ... t ascending, then selected rows ascending, in
// blocks of 64. The maximum m runs from -1e30: P of a block is taken against the maximum up to and
// including that block, the sum and the accumulator are rescaled in fp32. b rounds P to bf16 if
// round_p (not in the denominator); o is rounded if `round`. Window rows lie in a ring per
// sequence: position p of sequence slot q is row q * ring + p % ring.
struct AttentionArgs {
  const int32_t* n_rows;
  const float* q;            // [rows, heads, head_dim]
  float* o;                  // [rows, heads, head_dim]
  const int32_t* positions;  // [rows]
  const int32_t* row_seqs;   // [rows] sequence of the step
  const int32_t* row_slots;  // [rows] sequence slot
  const uint8_t* window_rows;
  RowFormat window_format;
  int32_t ring, window;
  PagedRows compressed;       // rows == nullptr: window only
  const int32_t* selected;    // [rows, topk]
  const int32_t* n_selected;  // [rows]
  int32_t topk;
  const uint8_t* sink;  // [heads] fp32, any alignment
  int32_t heads, head_dim;
  float scale;
  bool round_p, round;
  float* scratch;  // per thread: scratch + tid * scratch_stride, AttentionScratchFloats(...),
                   // 64-byte aligned
  int64_t scratch_stride;  // floats
};

constexpr int kAttentionBlock = 64;  // rows per step of the running maximum

// Heads of one row that a thread attends with at a time: they share every block of decoded rows.
constexpr int kAttentionHeads = 64;

// Per thread: a block of decoded rows (two forms of it, half the size each, where tiles multiply),
// and for each of kAttentionHeads heads its query, scores, weights and an accumulator.
static inline int64_t AttentionScratchFloats(int64_t head_dim) {
  return (kAttentionBlock / 2 + 2 * kAttentionHeads) * head_dim +
         2 * kAttentionHeads * kAttentionBlock;
}

}  // namespace deepinfer
