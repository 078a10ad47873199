#include "model/engram_hash.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "config/synthetic.h"

namespace deepinfer {
namespace {

using uint128 = unsigned __int128;

constexpr uint128 Join(uint64_t high, uint64_t low) { return uint128{high} << 64 | low; }

// The multipliers were drawn with numpy.random.default_rng(10007 * layer): its SeedSequence fills
// the 256 bits of a PCG64 (XSL-RR 128/64, O'Neill 2014).
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const std::array<uint64_t, 4> s = SeedWords(seed);
    increment_ = 2 * Join(s[2], s[3]) + 1;
    state_ = (increment_ + Join(s[0], s[1])) * kMultiplier + increment_;
  }

  uint64_t Next() {
    state_ = state_ * kMultiplier + increment_;
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    return std::rotr(folded, static_cast<int>(state_ >> 122));
  }

  // Uniform in [0, bound), bound above 2^32: the high half of a 128-bit product; low halves that
  // would favour some results are drawn again (Lemire 2019).
  uint64_t Below(uint64_t bound) {
    const uint64_t biased = -bound % bound;  // 2^64 mod bound
    uint128 product = uint128{Next()} * bound;
    while (static_cast<uint64_t>(product) < biased) product = uint128{Next()} * bound;
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  static constexpr uint128 kMultiplier = Join(0x2360ED051FC65DA4u, 0x4385DF649FCCF645u);

  static std::array<uint64_t, 4> SeedWords(uint64_t seed) {
    uint32_t hash = 0x43b0d7e5;
    const auto mix_in = [&hash](uint32_t v) {
      v ^= hash;
      hash *= 0x931e8875u;
      v *= hash;
      return v ^ (v >> 16);
    };
    std::array<uint32_t, 4> pool{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0,
                                 0};
    for (uint32_t& word : pool) word = mix_in(word);
    for (int a = 0; a < 4; ++a) {
      for (int b = 0; b < 4; ++b) {
        if (a == b) continue;
        const uint32_t mixed = 0xca01f9ddu * pool[b] - 0x4973f715u * mix_in(pool[a]);
        pool[b] = mixed ^ (mixed >> 16);
      }
    }
    std::array<uint64_t, 4> words{};
    uint32_t generator = 0x8b51f9dd;
    for (int i = 0; i < 8; ++i) {
      uint32_t v = pool[i % 4] ^ generator;
      generator *= 0x58f38dedu;
      v *= generator;
      words[i / 2] |= uint64_t{v ^ (v >> 16)} << (32 * (i % 2));
    }
    return words;
  }

  uint128 state_, increment_;
};

// Odd, and small enough that class * multiplier stays below 2^63. Integers throughout: doubles
// would lose the low bits.
std::vector<int64_t> Multipliers(int layer_id, int64_t classes, int n) {
  const int64_t bound = std::numeric_limits<int64_t>::max() / classes / 2;
  Pcg64 random(uint64_t{10007} * static_cast<uint64_t>(layer_id));
  std::vector<int64_t> result;
  for (int i = 0; i < n; ++i) {
    result.push_back(2 * static_cast<int64_t>(random.Below(static_cast<uint64_t>(bound))) + 1);
  }
  return result;
}

void CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(Code::kInvalid,
              fmt::format("{}: expected {} to {}, found {}", name, low, high, value));
}

}  // namespace

EngramHash::EngramHash(const EngramHashParams& params, std::vector<int32_t> token_classes)
    : max_ngram_(params.max_ngram),
      heads_(params.heads),
      dead_token_(params.dead_token),
      token_classes_(std::move(token_classes)) {
  CheckRange("engram_compressed_vocab_size", params.classes, 1,
             int64_t{1} << 28);  // keeps Below's bound above 2^32
  CheckRange("engram_vocab_size", params.vocab_size, 1, int64_t{1} << 40);
  CheckRange("engram_max_ngram_size", params.max_ngram, 2, kMaxNgram);
  CheckRange("engram_n_heads", params.heads, 1, 1024);
  if (params.num_embeddings.size() != params.layer_ids.size()) {
    throw Error(
        Code::kInvalid,
        fmt::format("engram_num_embeddings: expected {} entries as in engram_layer_ids, found {}",
                    params.layer_ids.size(), params.num_embeddings.size()));
  }
  for (int32_t token_class : token_classes_)
    CheckRange("engram token class", token_class, 0, params.classes - 1);
  pad_class_ = ClassOf(params.pad_token);

  // One walk over all layers and columns: each takes the next prime.
  const std::vector<int64_t> primes =
      EngramPrimes(params.vocab_size, columns() * static_cast<int64_t>(params.layer_ids.size()));
  size_t next_prime = 0;
  for (size_t layer = 0; layer < params.layer_ids.size(); ++layer) {
    const int layer_id = params.layer_ids[layer];
    CheckRange("engram_layer_ids", layer_id, 0, 1 << 20);
    Table table{Multipliers(layer_id, params.classes, max_ngram_), {}, {}};
    int64_t table_rows = 0;
    for (int column = 0; column < columns(); ++column) {
      table.primes.push_back(primes[next_prime++]);
      table.offsets.push_back(table_rows);
      table_rows += table.primes.back();
    }
    if (table_rows != params.num_embeddings[layer]) {
      throw Error(Code::kInvalid, fmt::format("engram_num_embeddings of layer {}: expected {}, the "
                                              "sum of the layer's primes, found {}",
                                              layer_id, table_rows, params.num_embeddings[layer]));
    }
    tables_.push_back(std::move(table));
  }
}

int32_t EngramHash::ClassOf(TokenId id) const {
  if (id >= 0 && id < std::ssize(token_classes_)) return token_classes_[id];
  throw Error(Code::kInvalid, fmt::format("token id: expected 0 to {}, found {}",
                                          std::ssize(token_classes_) - 1, id));
}

void EngramHash::Rows(std::span<const TokenId> ids, int64_t first, std::span<int64_t> rows,
                      std::span<uint8_t> dead) const {
  const int64_t n = std::ssize(ids) - first;
  DI_CHECK(first >= 0 && n >= 0 && std::ssize(dead) == n &&
           std::ssize(rows) == n * layers() * columns())
      << first << " of " << ids.size() << ", " << rows.size() << " rows, " << dead.size()
      << " flags";
  int64_t* row = rows.data();
  for (int64_t i = first; i < std::ssize(ids); ++i) {
    // Classes at look-back 0, 1, ...; the sequence start or a dead token blocks itself and all that
    // is further back.
    std::array<int64_t, kMaxNgram> window;
    bool blocked = false;
    for (int s = 0; s < max_ngram_; ++s) {
      blocked = blocked || i < s || ids[i - s] == dead_token_;
      window[s] = blocked ? pad_class_ : ClassOf(ids[i - s]);
    }
    dead[i - first] = ids[i] == dead_token_;

    for (const Table& table : tables_) {
      int64_t mixed = window[0] * table.multipliers[0];
      int column = 0;
      for (int s = 1; s < max_ngram_; ++s) {
        mixed ^= window[s] * table.multipliers[s];
        for (int head = 0; head < heads_; ++head, ++column) {
          *row++ = mixed % table.primes[column] + table.offsets[column];
        }
      }
    }
  }
}

}  // namespace deepinfer
