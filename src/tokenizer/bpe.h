// Byte-pair merging of one piece.
#pragma once

#include <array>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/types.h"

namespace deepinfer {

struct Merge {
  TokenId left, right, result;
};

class Bpe {
 public:
  Bpe() = default;
  // byte_ids: the token of each single byte. merges: lowest rank first, no pair twice.
  Bpe(const std::array<TokenId, 256>& byte_ids, std::vector<Merge> merges);

  // Appends the tokens of `piece` (bytes). Starts from single bytes and repeatedly merges the
  // adjacent pair of lowest rank, leftmost on ties. O(n log n) in the length of the piece.
  void Encode(std::string_view piece, std::vector<TokenId>* out) const;

 private:
  std::array<TokenId, 256> byte_ids_{};
  std::vector<Merge> merges_;                           // by rank
  std::unordered_map<uint64_t, int32_t> rank_of_pair_;  // key: left << 32 | right
};

}  // namespace deepinfer
