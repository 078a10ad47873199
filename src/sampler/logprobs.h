// Log-probabilities that a reply reports (spec 06 section 4).
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/types.h"

namespace deepinfer {

constexpr int kMaxTopLogprobs = 20;

struct TokenLogprobs {
  float chosen;  // of the sampled token
  int rank;      // number of tokens whose logit is not below the sampled token's, itself included
  std::vector<std::pair<TokenId, float>>
      top;  // the most probable tokens, best first, lower id first among equals
};

// log_softmax of the model's own logits: before bias, penalties, temperature and masks. `out->top`
// gets min(top, vocabulary) entries; its memory is reused. Throws Error(kInvalid) when top is not 0
// to 20 or a logit is NaN or +inf.
void ComputeLogprobs(std::span<const float> logits, TokenId chosen, int top, TokenLogprobs* out);

}  // namespace deepinfer
