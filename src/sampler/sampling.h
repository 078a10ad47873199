// Logits to a token (spec 06): penalties, temperature, min-p, top-k, top-p and a draw by Gumbel
// noise. Pure functions: a token depends on the logits, the parameters, the history and the
// position alone.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"
#include "sampler/philox.h"

namespace deepinfer {

struct SamplingParams {
  float temperature = 1;         // [0, 2]; below 1e-5 greedy, below 0.01 read as 0.01
  float top_p = 1;               // (0, 1]; 1 = off
  float min_p = 0;               // [0, 1]; 0 = off
  int top_k = 0;                 // -1 or 0 = off
  float repetition_penalty = 1;  // > 0; over prompt and output
  float frequency_penalty = 0;   // [-2, 2]; over output only, as presence_penalty
  float presence_penalty = 0;    // [-2, 2]
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // each added once, [-100, 100]
  int min_tokens = 0;                  // stop_ids cannot be drawn before this many output tokens
  std::vector<TokenId> stop_ids = {};  // end-of-text and the request's own stop tokens
  uint64_t seed = 0;
  uint32_t sample = 0;  // index among the request's parallel samples

  // Throws Error(kInvalid) with one sentence naming the parameter, its range and its value.
  void Validate(int64_t vocab_size) const;
  // The temperature that is used: 0 = greedy, else at least 0.01.
  float EffectiveTemperature() const;
  // Whether Sample, without `allowed`, is ArgMax of the logits as they come.
  bool TakesLargestLogit(int64_t n_output) const;
};

// Tokens in front of the one that is drawn. Only read when a penalty or min_tokens asks for it.
struct History {
  std::span<const TokenId> prompt;
  std::span<const TokenId> output;
};

// Bit t % 32 of word t / 32 tells whether token t may be drawn; empty = every token may.
using AllowedTokens = std::span<const uint32_t>;
inline bool Allows(AllowedTokens allowed, size_t token) {
  return allowed.empty() || (allowed[token / 32] >> (token % 32) & 1) != 0;
}

// Scratch memory, for one vocabulary size at a time. Grows on first use; carries nothing from one
// call to the next.
struct SamplingWorkspace {
  struct Candidate {
    float logit;
    TokenId id;
  };
  std::vector<float> logits;          // [vocab] processed copy
  std::vector<int32_t> output_count;  // [vocab], all 0 between calls
  std::vector<uint8_t> seen;          // [vocab], all 0 between calls
  std::vector<float> maxima, values;  // by top-k
  std::vector<Candidate> candidates;  // by top-p
};

// Throws Error(kInvalid) naming the first token whose logit is NaN or +inf, and when there is none.
void CheckLogits(std::span<const float> logits);

// Masks, bias and penalties, then (unless greedy) temperature, min-p, top-k and top-p, in this
// order and in place. A token that cannot be drawn becomes -inf. Throws Error(kInvalid) on NaN or
// +inf, on an id outside the vocabulary and when no token is left; logits are then unspecified.
void ProcessLogits(std::span<float> logits, const SamplingParams& params, const History& history,
                   SamplingWorkspace& workspace, AllowedTokens allowed = {});

// Largest value, lowest id among equals. No NaN, at least one entry.
TokenId ArgMax(std::span<const float> logits);

// A draw from softmax(logits): argmax of logit + Gumbel noise of the token's id. -inf is never
// drawn.
TokenId GumbelArgMax(std::span<const float> logits, const DrawKey& key, Stream stream);

// ProcessLogits on a copy, then ArgMax (greedy) or GumbelArgMax. `position` is that of the token to
// be drawn.
TokenId Sample(std::span<const float> logits, const SamplingParams& params, const History& history,
               int64_t position, SamplingWorkspace& workspace, AllowedTokens allowed = {});

}  // namespace deepinfer
