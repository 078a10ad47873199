// Finds the added tokens of tokenizer.json in text.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/types.h"

namespace deepinfer {

class AddedTokens {
 public:
  struct Segment {
    std::string_view text;
    TokenId id;  // -1: text between added tokens
  };

  // content must not be empty and must not have been added before.
  void Add(std::string_view content, TokenId id, bool normalized);

  // Cuts text into added tokens and what lies between them (never empty). Two passes, each leftmost
  // and longest at equal start: the tokens with normalized == false over the text, then the others
  // over what remains (spec 07 section 3).
  std::vector<Segment> Split(std::string_view text) const;

 private:
  // A byte trie; node 0 is the root.
  struct Trie {
    std::unordered_map<uint64_t, int32_t> child;  // key: node << 8 | byte
    std::vector<TokenId> id_at{-1};               // token that ends at a node, or -1
    void Add(std::string_view content, TokenId id);
    // Longest token that is a prefix of text[at..]; length 0 when none.
    Segment Match(std::string_view text, size_t at) const;
  };
  static void SplitBy(const Trie& trie, std::string_view text, std::vector<Segment>* out);

  Trie not_normalized_, normalized_;
};

}  // namespace deepinfer
