// Executor: a loaded model that runs steps. Owns weights, caches, plans and threads; knows nothing
// about requests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "config/options.h"
#include "engine/drafter.h"
#include "kv/kv_pool.h"
#include "model/plan.h"
#include "obs/profile.h"
#include "parallel/comm.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Called while loading: what is being done.
using LoadProgress = std::function<void(std::string_view what)>;

struct ExecutorOptions {
  EngineOptions engine;
  bool all_logits =
      false;  // room for the logits of every row of a step, not only of one per sequence
  LoadProgress progress;  // may be empty
  // The ranks that share the model, each with an executor of its own; null: this one is alone. Rank
  // 0 runs steps, the others Follow. Outlives the executor.
  Comm* world = nullptr;
};

class Executor {
 public:
  // Resolves and opens the model, checks it, binds weights and builds all plans. Throws Error.
  explicit Executor(const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const ModelConfig& config() const;
  const Tokenizer& tokenizer() const;  // of a model directory; synthetic models have none
  bool has_tokenizer() const;
  const std::string& model_dir() const;
  std::span<const std::string> unused_tensors() const;  // stored, but not part of the model
  KvPool& kv();
  // Resolved options: max_model_len, max_num_batched_tokens, num_kv_blocks and threads are never 0,
  // isa is the level used.
  const EngineOptions& options() const;

  // Runs one step: rows of up to max_num_seqs sequences, together at most max_num_batched_tokens,
  // slots open and blocks reserved. Returns logits [n, vocab_size] for the wanted rows in order,
  // valid until the next call. Does not change the lengths in kv(): the caller commits with
  // SetLength. Does not allocate. Throws Error for an id outside the vocabulary (before anything is
  // computed) and for bad checkpoint data met in the step; kIo when the world has failed: no
  // step is possible any more. draft_rows: leave window rows of these
  // tokens for drafts behind them; without, such drafts are poor guesses.
  std::span<const float> Step(std::span<const SeqRows> seqs, const ProbeFn* observer = nullptr,
                              bool draft_rows = true);

  // `row`: one of the rows of logits that the last Step returned, still valid. Its largest logit's
  // id, the lowest among equals; -1 when none is above -inf, or one is NaN or +inf. The threads
  // found it while they computed the logits.
  TokenId LargestLogit(std::span<const float> row) const;

  // A rank other than 0: computes its part of every step and draft of rank 0, until the executor
  // there ends. Throws Error when the world fails; then it fails for all.
  void Follow();

  // From now on every step is recorded here, and every draft there, until they are null again.
  void SetProfile(StepProfile* steps, StepProfile* drafts = nullptr);

  // What this rank has exchanged with others since the last call. Asks nobody.
  CommStats TakeExchanges();

  // Fills all caches with valid random rows, so that a sequence may be given any length with
  // SetLength without computing its tokens (measurements).
  void PlantCaches(uint64_t seed);

  // Rows of a step whose logits may be wanted.
  int64_t max_logits() const;

  // Tokens of a draft block; 0 when the model has no draft stages or options().speculative is off.
  int64_t draft_tokens() const;

  // Drafts what may follow the anchors (spec 05 section 4). Every sequence has at least one token
  // in the caches; their lengths do not change. Does not allocate. Throws Error as Step.
  Drafts Draft(std::span<const DraftSeq> seqs);

  // Bytes that a step of `rows` rows behind an empty cache reads (model/step_bytes.h).
  double StepBytes(int64_t rows) const;
  // The same of a draft for one sequence, with what leaves the rows that it starts from.
  double DraftBytes() const;

  // Weight and cache bytes that one decode step of one sequence of `context` tokens reads.
  int64_t BytesPerToken(int64_t context) const;

  // Bytes of a plan's memory booked under names that begin with `prefix`, for the largest bucket.
  int64_t PlannedBytes(const std::string& prefix) const;

  // Fills the memory of the plans with NaN patterns; results must not change (tests).
  void PoisonTemporaries();
  // From now on threads take independent phases in random orders; results must not change (tests).
  void ShufflePhases(uint32_t seed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A prompt that is text: its ids, with a begin-of-sentence token in front where there is none.
std::vector<TokenId> EncodePrompt(const Executor& executor, std::string_view text);

}  // namespace deepinfer
