// TokenMask: which tokens of a vocabulary may come next.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace deepinfer {

class TokenMask {
 public:
  // Nothing is allowed.
  explicit TokenMask(int64_t vocab_size) : words_(static_cast<size_t>(vocab_size + 31) / 32) {}

  void Allow(TokenId id) { Word(id) |= Bit(id); }
  void Forbid(TokenId id) { Word(id) &= ~Bit(id); }
  bool Allows(TokenId id) const { return (words_[static_cast<size_t>(id) / 32] & Bit(id)) != 0; }
  int64_t Count() const {
    int64_t n = 0;
    for (const uint32_t word : words_) n += std::popcount(word);
    return n;
  }
  // Bit t % 32 of word t / 32 stands for token t.
  std::span<const uint32_t> words() const { return words_; }
  bool operator==(const TokenMask&) const = default;

 private:
  uint32_t& Word(TokenId id) { return words_[static_cast<size_t>(id) / 32]; }
  static uint32_t Bit(TokenId id) { return uint32_t{1} << (static_cast<uint32_t>(id) % 32); }

  std::vector<uint32_t> words_;
};

}  // namespace deepinfer
