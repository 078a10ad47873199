#include "tokenizer/added_tokens.h"

#include "base/check.h"

namespace deepinfer {

void AddedTokens::Trie::Add(std::string_view content, TokenId id) {
  int32_t node = 0;
  for (const char c : content) {
    const uint64_t key = static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
    const auto [it, inserted] = child.emplace(key, static_cast<int32_t>(id_at.size()));
    if (inserted) id_at.push_back(-1);
    node = it->second;
  }
  DI_CHECK(node != 0 && id_at[node] < 0) << "added token " << id;
  id_at[node] = id;
}

AddedTokens::Segment AddedTokens::Trie::Match(std::string_view text, size_t at) const {
  Segment best{{}, -1};
  int32_t node = 0;
  for (size_t end = at; end < text.size();) {
    const auto it = child.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[end]));
    if (it == child.end()) break;
    node = it->second;
    ++end;
    if (id_at[node] >= 0) best = {text.substr(at, end - at), id_at[node]};
  }
  return best;
}

void AddedTokens::Add(std::string_view content, TokenId id, bool normalized) {
  (normalized ? normalized_ : not_normalized_).Add(content, id);
}

void AddedTokens::SplitBy(const Trie& trie, std::string_view text, std::vector<Segment>* out) {
  size_t plain = 0;  // start of the text that is not yet in `out`
  for (size_t at = 0; at < text.size();) {
    const Segment match = trie.Match(text, at);
    if (match.id < 0) {
      ++at;
      continue;
    }
    if (at > plain) out->push_back({text.substr(plain, at - plain), -1});
    out->push_back(match);
    at = plain = at + match.text.size();
  }
  if (text.size() > plain) out->push_back({text.substr(plain), -1});
}

std::vector<AddedTokens::Segment> AddedTokens::Split(std::string_view text) const {
  std::vector<Segment> first, both;
  SplitBy(not_normalized_, text, &first);
  for (const Segment& segment : first) {
    if (segment.id >= 0) {
      both.push_back(segment);
    } else {
      SplitBy(normalized_, segment.text, &both);
    }
  }
  return both;
}

}  // namespace deepinfer
