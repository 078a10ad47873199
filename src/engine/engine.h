// Engine: requests in, deltas out. Everything above (commands, server) knows nothing below this.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/chunk_policy.h"
#include "engine/depth_policy.h"
#include "engine/executor.h"
#include "engine/planted_drafts.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/stop_strings.h"
#include "grammar/token_masks.h"
#include "sampler/logprobs.h"
#include "sampler/speculative.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// One thread at a time. An answer depends on its request alone: not on what else runs, on
// max_num_batched_tokens or on the number of threads.
class Engine {
 public:
  // The executor outlives the engine; nobody else runs steps on it.
  // drafts: false computes answers without draft tokens even if the executor can draft.
  explicit Engine(Executor* executor, bool drafts = true);

  // Throws Error(kInvalid) with one sentence for an empty prompt, a prompt that leaves no room for
  // an answer within max_model_len, an id outside the vocabulary, and for any parameter out of
  // range; kUnsupported for an image's token. Any thread may call it.
  void Check(const Request& request) const;

  // Queues a request. Throws what Check throws.
  RequestId Submit(Request request);

  // Forgets a request, at any time; it gives no more deltas. Its slot and blocks are free when this
  // returns. Unknown ids are ignored.
  void Cancel(RequestId id);

  // Computes one step and returns what is new, at most one delta a request. A request that cannot
  // go on (NaN logits, bad bytes met in the checkpoint) ends with FinishReason::kError. Drafts are
  // not needed by anybody: when one meets bad bytes, the step goes on without. When a rank is gone,
  // all requests end that way.
  std::vector<Delta> Step();

  // Why no step is possible any more; empty: they are.
  const std::string& failure() const { return failure_; }

  // No request is left: Step has nothing to do.
  bool idle() const { return active_.empty(); }

  // Tokens of the request that are in the caches; its prompt is done when they are as many as it
  // has. 0 for unknown ids.
  int64_t n_computed(RequestId id) const;

  struct Stats {
    int64_t n_running, n_waiting, n_preemptions;
    double kv_used;           // share of the cache blocks that sequences use, 0 to 1
    int64_t n_steps, n_rows;  // since the start: steps, and tokens computed in them
    // Verifications of draft tokens, one a sequence and step; draft tokens verified in them;
    // accepted_at[i]: verifications that accepted more than i.
    int64_t n_verifications, n_drafted;
    std::vector<int64_t> accepted_at;
    std::vector<int64_t> depths;  // blocks drafted of which so many tokens were chosen

    // Steps that only continued answers: how many, tokens emitted in them, seconds.
    struct Steps {
      int64_t n = 0, tokens = 0;
      double seconds = 0;
      std::optional<double> StepSeconds() const;
    };
    Steps plain = {}, drafted = {};  // with no drafts to choose from, and with
    double drafts_s = 0;             // of the drafts of the latter
    int64_t n_draft_faults = 0;      // steps that gave up their drafts because of bad bytes
    std::string draft_fault = {};    // what the last of them met

    // Tokens per second of steps with drafts, over those of plain ones; below 1 drafts were a loss.
    std::optional<double> gain() const;
    int64_t n_accepted() const;
    // Mean tokens of a verification, 1 when there was none: acceptance length (spec 05 section 7).
    double tokens_per_verification() const;
  };
  Stats stats() const;

  // From now on drafts are judged there; it outlives the engine (tests, measurements).
  void PlantDrafts(PlantedDrafts* planted) { planted_ = planted; }

 private:
  struct Active {
    Request request;
    int64_t max_tokens;                    // prompt and answer together
    std::optional<StreamDecoder> decoder;  // none: answers are ids only
    StopStrings stop;
    int64_t n_text = 0;                  // bytes that the tokens so far gave
    std::vector<float> confidence = {};  // of the drafts set
    // Set: the answer keeps to a grammar, from here on when it is `on`.
    std::shared_ptr<TokenMasks> masks = {};
    GrammarState grammar_state = {};
    bool grammar_on = false;
    // What they were drawn from, when they are to be verified by rejection.
    std::vector<float> draft_logits = {};
  };
  void StartGrammar(Active* active);
  void MakeBeforeGrammar();
  AllowedTokens Allowed(const Active& active);
  int64_t MostTokens(const Request& request) const;
  std::span<const float> RunStep(const StepRecord& step);
  std::vector<Delta> EndAll(const std::string& why);
  void Compute(const StepRecord& step, std::vector<Delta>* deltas);
  void ComputeOneByOne(const StepRecord& step, std::vector<Delta>* deltas);
  void NoteChunk(const StepRecord& step, std::span<const Delta> deltas, double seconds);
  void NoteDraftFault(const StepRecord& step, const char* what);
  void Score(const ScheduledRows& rows, std::span<const float> logits, Delta* delta);
  std::vector<TokenId> Emit(const ScheduledRows& rows, std::span<const float> logits, Delta* delta);
  Verdict Judge(const ScheduledRows& rows, std::span<const float> logits, size_t row);
  Verdict Draw(const Active& active, std::span<const float> logits, std::span<const TokenId> tokens,
               size_t draft);
  void Tell(Active& active, std::span<const float> logits, TokenId token, int64_t n_tokens,
            Delta* delta);
  double DraftNext(const StepRecord& step);
  void SetDrafts(const Drafts& drafts, std::span<const DraftSeq> seqs,
                 std::span<const RequestId> ids);
  std::optional<int64_t> FixedDepth() const;
  bool LeavesDraftRows(const StepRecord& step) const;
  void Learn(const StepRecord& step, std::span<const std::vector<TokenId>> emitted, double step_s);
  void Count(std::span<const std::vector<TokenId>> emitted, double step_s);

  Executor& executor_;
  const bool drafts_;
  Scheduler scheduler_;
  std::map<RequestId, Active> active_;
  std::vector<TokenId> model_stop_ids_;
  std::shared_ptr<const TokenTrie> trie_;  // made for the first grammar
  std::map<const Grammar*, std::weak_ptr<TokenMasks>> masks_;
  std::optional<TokenMask> before_grammar_;  // made for the first that waits for its token
  SamplingWorkspace workspace_;
  TokenLogprobs logprobs_;
  RequestId next_id_ = 1;
  int64_t n_steps_ = 0, n_rows_ = 0;
  DepthPolicy depth_policy_;
  ChunkPolicy chunk_policy_;
  double draft_s_ = 0;  // of the draft before the step to come
  int64_t n_verifications_ = 0, n_drafted_ = 0;
  std::vector<int64_t> accepted_at_, depths_;
  Stats::Steps plain_, drafted_;
  double drafts_s_ = 0;
  int64_t n_draft_faults_ = 0;
  std::string draft_fault_, failure_;
  PlantedDrafts* planted_ = nullptr;
};

}  // namespace deepinfer
