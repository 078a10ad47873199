// Scheduler: which rows of which sequences the next step computes (continuous batching).
//
// Pure: no threads and no clock. It owns the token list of every sequence and the slots and blocks
// of the KV pool; the engine runs the steps and decides when a sequence has ended.
//
// Rows of answers come first: a sequence that continues its answer takes one row of a step, and one
// more for each draft token while there is room. What is left of the step, or as much of it as a
// limit allows, is a chunk of the prompts that are not in the caches yet, in the order of arrival;
// but up to half of it goes to prompts with half as much to do as the oldest one, or less, so that
// short ones do not wait for long ones and the oldest always goes on.
//
// Sequences get their places in the order of arrival, when there are blocks for all their tokens.
// When blocks run out later, the youngest sequence is put back in front of the queue; what it has
// computed stays in the prefix cache as long as the blocks are not needed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/types.h"
#include "kv/kv_pool.h"
#include "kv/prefix_cache.h"

namespace deepinfer {

using RequestId = int64_t;

// Rows of one sequence in a step: its tokens [first, first + count).
struct ScheduledRows {
  RequestId id;
  SeqSlot slot;
  int64_t first, count;
  bool samples;      // the rows reach the last known token: the next one is to be drawn
  int64_t n_drafts;  // the last rows of the count are draft tokens, to be verified
  int64_t n_logits;  // of the last rows of the count the logits are wanted
};
using StepRecord = std::vector<ScheduledRows>;

// How many rows of prompts a step may compute beside so many rows of answers, at least one beside
// none; there is room for `most`, and there are `prompt_rows` to be computed.
using ChunkLimit = std::function<int64_t(int64_t answer_rows, int64_t prompt_rows, int64_t most)>;

class Scheduler {
 public:
  // The pool outlives the scheduler, and nobody else opens or closes its slots.
  // max_logits: rows of a step whose logits may be wanted; enough for those that sample.
  // prefix_cache_bytes: see PrefixCache.
  Scheduler(KvPool* kv, int64_t max_num_batched_tokens, int64_t max_logits,
            int64_t prefix_cache_bytes);

  // Throws Error when the pool has too few blocks for such a sequence even when empty. Any thread
  // may call it.
  void Check(int64_t n_prompt, int64_t max_tokens) const;

  // Queues a sequence that will have at most `max_tokens` tokens, prompt included (more than the
  // prompt has, and no more than the pool's max_model_len). scores: the logits of all rows of the
  // prompt are wanted, once each; it goes on from what others have computed only behind those had.
  // Throws what Check throws.
  void Add(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens, bool scores = false);

  // The sequence has ended; its slot is free when this returns, and so are its blocks, but for
  // those that others may go on from.
  void Finish(RequestId id);
  // The same for one that has not ended; also for waiting sequences, at any time, also between Next
  // and Commit. Unknown ids are ignored.
  void Cancel(RequestId id);

  // Rows of the next step, with slots open and blocks reserved; empty only when no sequence is
  // left.
  StepRecord Next(const ChunkLimit& limit = {});
  // The step was computed. `emitted` has an entry for each entry of the record that samples, in
  // order: the draft tokens that were accepted and one more. Rows of rejected drafts are taken
  // back. Entries of sequences that are gone are ignored.
  void Commit(const StepRecord& step, std::span<const std::vector<TokenId>> emitted);

  // What may follow the tokens of a running sequence, for its next step only.
  void SetDrafts(RequestId id, std::span<const TokenId> drafts);

  // Prompt and answer so far. The sequence must be here.
  std::span<const TokenId> tokens(RequestId id) const;
  // The same, with its drafts behind.
  std::span<const TokenId> tokens_and_drafts(RequestId id) const;
  // How many of its tokens did not have to be computed, as others had computed them.
  int64_t n_cached(RequestId id) const { return Get(id).n_cached; }
  // How many of its tokens are in the caches; 0 while it waits.
  int64_t n_computed(RequestId id) const;

  // Share of the cache blocks that sequences use, 0 to 1.
  double kv_used() const;
  int64_t n_running() const { return std::ssize(running_); }
  int64_t n_waiting() const { return std::ssize(waiting_); }
  int64_t n_preemptions() const { return n_preemptions_; }

 private:
  struct Sequence {
    RequestId id;
    std::vector<TokenId> tokens;  // the first n_known are certain, drafts follow
    int64_t n_known;
    int64_t max_tokens;
    int64_t n_prompt;
    int64_t n_silent;  // so many rows give no logits that somebody wants, or have given them
    SeqSlot slot = -1;
    int64_t n_cached = 0;
    int64_t branch = 0;       // where it leaves the pages that others have computed
    int64_t n_found = 0;      // tokens that it went on from when it got its place
    int64_t n_published = 0;  // of the prefix cache at that time
    bool was_preempted = false;
  };
  const Sequence& Get(RequestId id) const;
  int64_t Left(const Sequence& seq) const { return seq.n_known - kv_->length(seq.slot); }
  void Take(const Sequence& seq, int64_t count, int64_t n_drafts, StepRecord* step) const;
  std::vector<size_t> TakeAnswers(int64_t* budget, StepRecord* step);
  void TakeChunk(std::span<const size_t> prompts, int64_t rows, StepRecord* step);
  int64_t DraftRows(size_t i, int64_t budget);
  const Sequence* Find(RequestId id) const;
  bool MakeRoom(size_t i, int64_t tokens);
  void PutBack();
  bool AdmitFirst();
  PrefixCache::Hit Match(const Sequence& seq) const;
  bool Place(Sequence* seq);
  void LookAgain(Sequence* seq);
  void Publish(const Sequence& seq, int64_t before);

  KvPool* kv_;
  int64_t max_num_batched_tokens_, max_logits_;
  std::vector<Sequence> running_;  // oldest first
  std::deque<Sequence> waiting_;   // oldest first, all younger than those running
  PrefixCache prefixes_;
  // The first one that waits found no place when there were so many blocks to be had and the prefix
  // cache was that old; before one of the two has grown nothing has changed for it.
  struct Refusal {
    RequestId id = -1;
    int64_t blocks = 0, n_published = 0;
  };
  Refusal refusal_;
  int64_t n_preemptions_ = 0;
};

}  // namespace deepinfer
