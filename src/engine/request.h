// What is asked of the engine, and what comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"
#include "config/generation_config.h"
#include "engine/scheduler.h"
#include "grammar/grammar.h"
#include "sampler/sampling.h"

namespace deepinfer {

struct Request {
  std::vector<TokenId> prompt;    // taken as it is: no begin-of-sentence token is put in front
  SamplingParams sampling;        // seed is ignored: see the next field
  std::optional<uint64_t> seed;   // none: a random one
  int64_t max_tokens = 0;         // of the answer; 0 = as many as max_model_len leaves
  std::vector<std::string> stop;  // texts that end the answer; never part of its text
  // Ids that end the answer besides sampling.stop_ids: end of sentence, begin of sentence and
  // <｜User｜>. true: they do not.
  bool ignore_eos = false;
  // The answer keeps to the grammar: from its beginning or, when grammar_after is set, behind the
  // first such token (</think>), in front of which it neither ends by a stop token of the model's
  // nor has the token of tool-call tags. Not together with ignore_eos or min_tokens. Requests with
  // the same grammar object share what is worked out for it.
  std::shared_ptr<const Grammar> grammar = {};
  std::optional<TokenId> grammar_after = {};
  std::optional<int> logprobs;  // report those of the answer, with so many alternatives (0 to 20)
  // Also those of the prompt's tokens but the first, bit for bit what they would be as tokens of an
  // answer. Needs logprobs. All of such a prompt is computed, whatever is remembered of it.
  bool prompt_logprobs = false;
  bool prompt_only = false;  // there is no answer: ends with kLength behind its prompt
};

// How the model's makers want it sampled, where they say.
SamplingParams DefaultSampling(const GenerationConfig& model);

enum class FinishReason {
  kStop,    // a stop token or a stop string
  kLength,  // max_tokens or max_model_len
  kError,   // Delta::error says why
};

// "stop", "length" or "error".
const char* FinishReasonName(FinishReason reason);

struct TokenLogprob {
  TokenId id;
  float logprob;                               // of the model's own logits
  int rank;                                    // 1 = most probable
  std::vector<std::pair<TokenId, float>> top;  // best first
};

// News of one request. All deltas of a request, put together, are its answer.
struct Delta {
  RequestId id;
  std::vector<TokenId> token_ids =
      {};  // stop tokens, and those that complete a stop string, included
  // For each of them, bytes of the whole answer's text up to and with its text; that of a character
  // begun is with the token that ends it. Empty without a tokenizer.
  std::vector<int64_t> text_ends = {};
  // Text that is certain: never half a character, nor what may yet become a stop string. Without
  // special tokens, the stop token and the stop string.
  std::string text = {};
  std::vector<TokenLogprob> logprobs = {};  // one for each of token_ids when asked for, else empty
  std::vector<TokenLogprob> prompt_logprobs = {};  // of the next tokens of the prompt, likewise
  std::optional<FinishReason> finish = {};         // set in the last delta
  std::string error = {};
  // Tokens of the prompt that did not have to be computed: others had computed them.
  int64_t n_cached = 0;
};

// The deltas of one request, put together.
struct SequenceResult {
  std::vector<TokenId> token_ids;
  std::string text;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::optional<FinishReason> finish;
  std::string error;

  void Append(const Delta& delta);
};

}  // namespace deepinfer
