// The tokens of a vocabulary by their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Immutable; any thread may use it.
class TokenTrie {
 public:
  // A node in the order of a walk: each is followed by all that begins with its bytes.
  struct Node {
    uint8_t byte;
    int32_t depth;        // number of bytes, at least 1
    int32_t next;         // the first node that does not begin with these bytes
    int32_t first_token;  // into tokens(); those of the node end where the next node's begin
  };

  // bytes[id]: what a token stands for; tokens that are empty cannot be used.
  explicit TokenTrie(std::span<const std::string_view> bytes);
  // The ordinary tokens of a tokenizer, which is not needed afterwards. Added tokens are left out,
  // except that of tool-call markup, which counts only where has_markup of a grammar allows it.
  static TokenTrie FromTokenizer(const Tokenizer& tokenizer);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> TokensOf(int32_t node) const {
    return std::span(tokens_).subspan(
        static_cast<size_t>(nodes_[static_cast<size_t>(node)].first_token),
        static_cast<size_t>(nodes_[static_cast<size_t>(node) + 1].first_token -
                            nodes_[static_cast<size_t>(node)].first_token));
  }
  int32_t n_nodes() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  int32_t max_depth() const { return max_depth_; }
  int64_t vocab_size() const { return static_cast<int64_t>(bytes_.size()); }
  // Empty for tokens that cannot be used.
  std::string_view BytesOf(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  std::optional<TokenId> markup_token() const { return markup_token_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<TokenId> tokens_;
  std::optional<TokenId> markup_token_;
  int32_t max_depth_ = 0;
};

}  // namespace deepinfer
