// A draw from softmax(logits) as the largest logit + Gumbel noise of its token (spec 06 section 5),
// without looking at the noise of tokens that cannot win.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/types.h"
#include "sampler/philox.h"

namespace deepinfer {

// Takes a vocabulary piece by piece, in any order. The result is that of adding GumbelFromWord to
// every logit: same values, same token.
class GumbelMax {
 public:
  GumbelMax(const DrawKey& key, Stream stream) : key_(key), stream_(stream) {}

  // Tokens first, first + 1, ... -inf and NaN are never drawn.
  void Add(std::span<const float> logits, int64_t first);

  // The largest sum so far and its token, the lowest among equals; -1: none.
  double value() const { return value_; }
  TokenId id() const { return id_; }

 private:
  void AddGroup(std::span<const float> logits, int64_t first);
  void AddOne(float logit, int64_t id);

  DrawKey key_;
  Stream stream_;
  double value_ = -std::numeric_limits<double>::infinity();
  TokenId id_ = -1;
  float least_ = -std::numeric_limits<float>::infinity();  // a lower logit cannot win
  int64_t block_ = -1;                                     // the four ids that words_ belong to
  std::array<uint32_t, 4> words_{};
};

}  // namespace deepinfer
