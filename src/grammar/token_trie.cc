#include "grammar/token_trie.h"

#include <algorithm>
#include <numeric>

namespace deepinfer {
namespace {

constexpr std::string_view kMarkup = "｜DSML｜";

}  // namespace

TokenTrie::TokenTrie(std::span<const std::string_view> bytes)
    : bytes_(bytes.begin(), bytes.end()), tokens_(bytes.size()) {
  std::iota(tokens_.begin(), tokens_.end(), 0);
  std::erase_if(tokens_, [&](TokenId id) { return BytesOf(id).empty(); });
  std::ranges::sort(tokens_, [&](TokenId a, TokenId b) {
    return BytesOf(a) != BytesOf(b) ? BytesOf(a) < BytesOf(b) : a < b;
  });
  std::vector<int32_t> open;  // nodes on the way to the latest one
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back())
      nodes_[static_cast<size_t>(open.back())].next = static_cast<int32_t>(nodes_.size());
  };
  std::string_view last;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = BytesOf(tokens_[i]);
    const auto common = static_cast<size_t>(std::ranges::mismatch(last, text).in1 - last.begin());
    close(common);
    for (size_t d = common; d < text.size(); ++d) {
      open.push_back(static_cast<int32_t>(nodes_.size()));
      // A node that has no token itself ends where it begins.
      nodes_.push_back(
          {static_cast<uint8_t>(text[d]), static_cast<int32_t>(d + 1), 0, static_cast<int32_t>(i)});
    }
    max_depth_ = std::max(max_depth_, static_cast<int32_t>(text.size()));
    last = text;
  }
  close(0);
  nodes_.push_back({0, 0, 0, static_cast<int32_t>(tokens_.size())});
}

TokenTrie TokenTrie::FromTokenizer(const Tokenizer& tokenizer) {
  std::vector<std::string_view> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.TokenBytes(id);
    const bool added = tokenizer.IdOf(text) == id;
    if (!added) bytes[static_cast<size_t>(id)] = text;
  }
  TokenTrie trie(bytes);
  trie.markup_token_ = tokenizer.IdOf(kMarkup);
  if (trie.markup_token_) trie.bytes_[static_cast<size_t>(*trie.markup_token_)] = kMarkup;
  return trie;
}

}  // namespace deepinfer
