// Engram table rows of a token: a hash of the 2-, 3-, ... -grams that end at it (spec 04 section
// 3). Depends on token ids only, so rows can be asked for before the step that uses them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace deepinfer {

// The numbers of config.json that fix the hash.
struct EngramHashParams {
  std::vector<int> layer_ids;           // engram_layer_ids
  std::vector<int64_t> num_embeddings;  // engram_num_embeddings: table rows of each of these layers
  int64_t classes;                      // engram_compressed_vocab_size
  int64_t vocab_size;                   // engram_vocab_size: where the walk over primes starts
  int max_ngram;                        // engram_max_ngram_size
  int heads;                            // engram_n_heads, per n-gram size
  TokenId pad_token;                    // its class stands for "nothing here"
  TokenId dead_token = -1;              // image token: ends every n-gram; -1 = none
};

class EngramHash {
 public:
  static constexpr int kMaxNgram = 8;

  // token_classes [vocabulary]: class of each token id. Throws Error(kInvalid) when a number is out
  // of range, a class is not below params.classes, or a layer's primes do not add up to its
  // num_embeddings.
  EngramHash(const EngramHashParams& params, std::vector<int32_t> token_classes);

  int layers() const { return static_cast<int>(tables_.size()); }
  int columns() const {
    return (max_ngram_ - 1) * heads_;
  }                                                // of one layer: 2-gram heads, 3-gram heads, ...
  int lookback() const { return max_ngram_ - 1; }  // earlier ids that a position depends on

  // Rows of positions first .. ids.size() - 1. ids[0] is the start of the sequence or at least
  // lookback() in front of `first`; nothing earlier is read. rows: [ids.size() - first, layers(),
  // columns()], each below the layer's num_embeddings. dead: [ids.size() - first], 1 where the
  // token itself is dead (its rows have no effect). Throws Error(kInvalid) naming an id that is
  // outside the class map.
  void Rows(std::span<const TokenId> ids, int64_t first, std::span<int64_t> rows,
            std::span<uint8_t> dead) const;

  // Constants of a layer, by its place in layer_ids: [max_ngram], [columns], [columns].
  std::span<const int64_t> multipliers(int layer) const { return tables_[layer].multipliers; }
  std::span<const int64_t> primes(int layer) const { return tables_[layer].primes; }
  std::span<const int64_t> offsets(int layer) const { return tables_[layer].offsets; }

 private:
  struct Table {
    std::vector<int64_t> multipliers, primes, offsets;
  };
  int32_t ClassOf(TokenId id) const;

  int max_ngram_, heads_;
  TokenId dead_token_;
  std::vector<int32_t> token_classes_;
  int32_t pad_class_;
  std::vector<Table> tables_;
};

}  // namespace deepinfer
