// StepInputs: everything that changes from step to step, at a fixed address. The arguments of a
// plan point here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/types.h"

namespace deepinfer {

using SeqSlot = int32_t;  // place of a sequence in the KV pool

// The rows one sequence contributes to a step: tokens [first, first + count) of its token list.
struct SeqRows {
  SeqSlot slot;
  std::span<const TokenId> tokens;  // the whole sequence up to and including the rows of this step
  int64_t first;                    // position of the first row; rows before it are in the caches
  int64_t n_logits;                 // logits are wanted for the last n_logits rows
};

// A sequence that is drafted for: the token after its last one is known, but not in the caches.
struct DraftRows {
  SeqSlot slot;
  TokenId anchor;
};

inline constexpr int kMaxRatio = 2;  // compression ratios are 1 and 2

struct StepInputs {
  int64_t max_rows;  // fixed when the block is made

  // Valid parts.
  int32_t n_rows, n_seqs, n_samples;
  int32_t n_draft_rows;             // rows that leave window rows for the draft stages: all or none
  int32_t n_groups[kMaxRatio + 1];  // by ratio: rows of this step that complete a group
  // Of all batches that ranks compute side by side in this step, see Layout; with one batch these
  // are n_rows and n_samples, and every row and sample has its own number there.
  int32_t n_world_rows, n_world_samples;

  // Per row.
  TokenId* ids;
  int32_t* positions;
  int32_t* window_ends;   // last position whose window row is seen: its own, or the block's last
  int32_t* row_seqs;      // sequence of the step, 0 ... n_seqs - 1
  int32_t* row_slots;     // sequence slot in the pool
  int64_t* window_slots;  // row of the window ring
  int64_t* raw_slots;     // row of the ring of open groups
  uint8_t* dead;          // Engram: image position
  int64_t* engram_rows;   // [Engram layers, max_rows, columns] table rows

  // Per group, by ratio: the row that completes it and the cache row it becomes.
  int32_t* group_rows[kMaxRatio + 1];
  int64_t* group_slots[kMaxRatio + 1];

  int32_t* sample_rows;  // [n_samples] rows whose logits are wanted

  int32_t *world_rows, *world_samples;  // numbers of the rows and samples among all batches

  int32_t* block_table;  // [n_seqs, table_stride]
  int64_t table_stride;

  // All rows as the pairs of one expert that everyone is routed to (the shared expert).
  int32_t one, zero, all_rows_begin[2];
  int32_t* all_rows;  // 0, 1, 2, ...

  static_assert(sizeof(TokenId) == 4);
};

// Numbers the rows and samples of one batch among those of all, sequence by sequence.
class BatchNumbers {
 public:
  explicit BatchNumbers(StepInputs* in) : in_(in) { in->n_world_rows = in->n_world_samples = 0; }
  // own: is it a sequence of this batch?
  void Add(int64_t rows, int64_t samples, bool own);

 private:
  StepInputs* in_;
  int32_t row_ = 0, sample_ = 0;  // of this batch
};

// Owns the block. Sized for the largest bucket.
class StepBlock {
 public:
  StepBlock(int64_t max_rows, int64_t max_seqs, int64_t max_blocks_per_seq,
            int64_t engram_rows_per_token);
  StepInputs* inputs() const { return arena_.At<StepInputs>({}); }
  int64_t max_rows() const { return max_rows_; }

 private:
  int64_t max_rows_;
  Arena arena_;
};

}  // namespace deepinfer
