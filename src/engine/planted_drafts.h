// PlantedDrafts: takes the place of the draft stages' and the model's judgement (tests,
// measurements). No option of a request or of the command line leads here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/types.h"
#include "engine/scheduler.h"

namespace deepinfer {

class PlantedDrafts {
 public:
  virtual ~PlantedDrafts() = default;

  // A block was drafted behind the first n_tokens tokens of the request. May change its tokens and
  // its confidence (before the sigmoid), both [block]. The depth is chosen afterwards. Rejection
  // goes on to verify as if the tokens had been drawn from the draft's own logits.
  virtual void Drafted(RequestId id, int64_t n_tokens, std::span<TokenId> tokens,
                       std::span<float> confidence) {
    static_cast<void>(id), static_cast<void>(n_tokens);
    static_cast<void>(tokens), static_cast<void>(confidence);
  }

  // How many drafts of every block are verified; nothing: as many as the engine chooses.
  virtual std::optional<int64_t> Depth() const { return std::nullopt; }

  // Whether draft number `slot` of that block is accepted; nothing: it is verified. One that is
  // rejected here is followed by the token that the model draws in its place, even if both are
  // equal.
  virtual std::optional<bool> Accepts(RequestId id, int64_t n_tokens, int64_t slot) = 0;
};

}  // namespace deepinfer
