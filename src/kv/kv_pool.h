// KvPool: the caches of all sequences (docs/kv.md).
//
// Layer-major: all rows of one cache of one layer are contiguous, so a kernel sees a pointer and a
// stride.
//
// window: a ring per sequence slot and layer, slot = position mod ring; ring = window + most rows
// of one step + rows of a draft block, so neither a step nor a draft overwrites a row that is still
// read, and going back is only a smaller length.
//
// compressed, index keys: pages of kBlockTokens tokens, one block table per sequence for all
// owners; rows beyond the length are invisible.
//
// open groups: raw fp32 rows (kv and score) of the newest tokens in a ring of 2 + most rows of one
// step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/arena.h"
#include "kv/step_inputs.h"

namespace deepinfer {

inline constexpr int64_t kBlockTokens =
    64;  // a multiple of both ratios and of the released candidate blocks

// Blocks that so many tokens take.
inline int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

struct KvShape {
  int64_t n_layers;          // layers and draft stages with a window ring
  int64_t window;            // positions a query sees, itself included
  int64_t max_step_rows;     // most rows of one sequence in one step
  int64_t draft_rows = 0;    // rows that a draft writes behind a sequence, never part of it
  int64_t window_row_bytes;  // one packed row
  int64_t compressed_row_bytes, index_row_bytes;
  int64_t raw_cols;  // floats of one raw row, the same for kv and score
  struct Owner {
    int layer, ratio;
  };
  std::vector<Owner> owners;  // layers that write compressed rows, ascending
  // Slot s belongs to batch s mod n_batches, see Layout.
  int n_batches = 1;

  int64_t ring() const { return window + max_step_rows + draft_rows; }
  int64_t raw_ring() const { return kMaxRatio + max_step_rows; }
  // Bytes of one block over all owners.
  int64_t BlockBytes() const;
};

class KvPool {
 public:
  KvPool(const KvShape& shape, int max_seqs, int64_t n_blocks, int64_t max_model_len);

  // A free sequence slot with length 0, of the batch with fewest sequences, or -1 when all are
  // taken.
  SeqSlot Open();
  void Close(SeqSlot slot);

  // Makes room for `tokens` tokens in total. false: not enough free blocks; nothing changed.
  bool Reserve(SeqSlot slot, int64_t tokens);
  // Commit and rollback: the sequence has exactly `tokens` tokens from now on. Rolling back is
  // exact as long as no more than max_step_rows tokens are taken back, and none that was loaded;
  // blocks stay reserved.
  void SetLength(SeqSlot slot, int64_t tokens);
  // Do the rings hold what a sequence of the first `tokens` tokens can see? Not what was replaced
  // since, and nothing in front of a state that was loaded.
  bool CanRollBack(SeqSlot slot, int64_t tokens) const {
    const Seq& seq = seqs_[static_cast<size_t>(slot)];
    return tokens >= seq.loaded && seq.written - tokens <= shape_.max_step_rows;
  }

  // Sharing with PrefixCache. A block is free when no sequence uses it and it is not cached.
  std::span<const int32_t> blocks(SeqSlot slot) const {
    return seqs_[static_cast<size_t>(slot)].blocks;
  }
  // An open, empty sequence begins with these blocks, which are full.
  void Adopt(SeqSlot slot, std::span<const int32_t> blocks);
  void SetCached(int32_t block, bool cached);
  bool in_use(int32_t block) const { return block_uses_[static_cast<size_t>(block)].n_seqs > 0; }
  // Blocks that no sequence uses, only the cache.
  int64_t n_idle_cached() const { return n_idle_cached_; }
  // The rows of the rings that a sequence of `tokens` tokens can still see: window rows of all
  // layers and stages, raw rows of open groups. Save needs CanRollBack; Load makes that the length.
  int64_t ring_bytes() const { return ring_bytes_; }
  void SaveRings(SeqSlot slot, int64_t tokens, std::byte* to) const;
  void LoadRings(SeqSlot slot, int64_t tokens, const std::byte* from);
  // Has nothing been computed since LoadRings?
  bool IsJustLoaded(SeqSlot slot) const {
    const Seq& seq = seqs_[static_cast<size_t>(slot)];
    return seq.loaded > 0 && seq.written == seq.loaded;
  }
  // The bytes of LoadRings alone, of a slot that somebody else keeps the books of.
  void PutRings(SeqSlot slot, int64_t tokens, const std::byte* from);

  int batch(SeqSlot slot) const { return slot % shape_.n_batches; }
  int64_t length(SeqSlot slot) const { return seqs_[static_cast<size_t>(slot)].length; }

  int64_t n_blocks() const { return n_blocks_; }
  int64_t free_blocks() const {
    return n_blocks_ - first_unused_block_ + static_cast<int64_t>(returned_blocks_.size());
  }
  int64_t max_blocks_per_seq() const { return max_blocks_per_seq_; }
  int max_seqs() const { return static_cast<int>(seqs_.size()); }
  const KvShape& shape() const { return shape_; }

  // Writes ids, positions, slots, groups and block tables of a step. Blocks must be reserved; the
  // rows of a sequence continue its length. Leaves the Engram part and the numbers among all
  // batches (BatchNumbers) alone.
  void FillInputs(std::span<const SeqRows> seqs, StepInputs* inputs) const;

  // The same for a draft (spec 05 section 4): per sequence `block` rows behind its last token, the
  // anchor and then `noise`. They need no blocks.
  void FillDraft(std::span<const DraftRows> seqs, int64_t block, TokenId noise,
                 StepInputs* inputs) const;

  // Caches, for the arguments of kernels.
  uint8_t* window_rows(int64_t layer) const;
  uint8_t* compressed_rows(int layer) const;
  uint8_t* index_rows(int layer) const;
  float* raw_kv(int layer) const;
  float* raw_score(int layer) const;

 private:
  struct Seq {
    bool open = false;
    int64_t length = 0;
    int64_t written =
        0;  // greatest length so far: rows up to here have replaced older ones in the rings
    int64_t loaded = 0;  // length that it began with: the rings hold what that one saw
    std::vector<int32_t> blocks;
  };
  struct BlockUse {
    int32_t n_seqs = 0;
    bool cached = false;
  };
  int32_t TakeBlock();
  void UseBlock(int32_t block, int32_t change);
  // Calls copy(bytes in the caches, bytes of the snapshot, count) for each stretch of rows.
  template <class Copy>
  void ForEachRing(SeqSlot slot, int64_t tokens, const Copy& copy) const;
  size_t OwnerIndex(int layer) const;
  int32_t AddRow(SeqSlot slot, int32_t step_seq, TokenId id, int64_t position, int64_t window_end,
                 StepInputs* inputs) const;
  void FillRow(const Seq& seq, SeqSlot slot, int32_t step_seq, TokenId id, int64_t position,
               StepInputs* inputs) const;

  KvShape shape_;
  int64_t n_blocks_, max_blocks_per_seq_;
  std::vector<Seq> seqs_;
  std::vector<SeqSlot> free_slots_;
  int64_t first_unused_block_ = 0;  // blocks from here on were never taken
  std::vector<int32_t> returned_blocks_;
  std::vector<BlockUse> block_uses_;  // [n_blocks]
  int64_t n_idle_cached_ = 0;
  int64_t ring_bytes_ = 0;
  Buf window_;
  std::vector<Buf> compressed_, index_, raw_kv_, raw_score_;
  Arena arena_;
};

}  // namespace deepinfer
