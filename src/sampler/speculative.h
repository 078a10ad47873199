// Verification of draft tokens by rejection (spec 05 section 5; Leviathan et al.,
// "Fast inference from transformers via speculative decoding"). Pure, one row at a time,
// because what a row may draw depends on the tokens accepted before it.
//
// Two other rules need nothing from here: with greedy decoding and in the path-identical mode a
// draft is accepted when Sample() draws it, and what Sample() drew is emitted in any case.
#pragma once

#include <span>

#include "sampler/sampling.h"

namespace deepinfer {

struct Verdict {
  bool accepted;
  TokenId token;  // what is emitted: the draft, or a draw from the residual
};

// Accepts `draft` with probability min(1, p / q), else draws from max(p - q, 0): emitted tokens are
// distributed as p = softmax(target). target: after ProcessLogits with a temperature above 0, not
// all -inf. proposal: q = softmax(proposal), what the draft was drawn from; empty says that it
// was chosen without a draw (q = 1 at it). key.position is that of the draft.
Verdict VerifyDraft(std::span<const float> target, std::span<const float> proposal, TokenId draft,
                    const DrawKey& key);

}  // namespace deepinfer
