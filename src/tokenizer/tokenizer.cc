#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/read_file.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/unicode.h"

namespace deepinfer {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;  // the released file has 6.4 MB

// A spelling made of byte characters only stands for those bytes; any other one for its own UTF-8.
std::string BytesOfSpelling(const std::string& spelling) {
  std::string bytes;
  for (size_t at = 0; at < spelling.size();) {
    const Utf8Step step = ReadUtf8(spelling, at);
    const int byte = ByteOfCharacter(step.code_point);
    if (byte < 0) return spelling;
    bytes.push_back(static_cast<char>(byte));
    at += step.bytes;
  }
  return bytes;
}

}  // namespace

Tokenizer Tokenizer::Load(const std::string& path) {
  return Parse(ReadFile(path, kMaxFileBytes), path);
}

Tokenizer Tokenizer::Parse(std::string_view json, const std::string& name) {
  TokenizerJson file = ParseTokenizerJson(json, name);
  Tokenizer t;
  t.name_ = name;
  t.pre_tokenizer_ = file.pre_tokenizer;
  t.spellings_ = std::move(file.spellings);
  t.bytes_.reserve(t.spellings_.size());
  for (const std::string& spelling : t.spellings_) t.bytes_.push_back(BytesOfSpelling(spelling));
  t.special_.resize(t.spellings_.size());
  for (const AddedToken& token : file.added_tokens) {
    t.special_[token.id] = token.special;
    t.added_ids_.emplace(token.content, token.id);
    t.added_tokens_.Add(token.content, token.id, token.normalized);
  }
  t.bpe_ = Bpe(file.byte_ids, std::move(file.merges));
  return t;
}

void Tokenizer::CheckId(TokenId id) const {
  if (id < 0 || id >= vocab_size()) {
    throw Error(Code::kInvalid, fmt::format("token id {} is outside the vocabulary of {} tokens",
                                            id, vocab_size()));
  }
}

void Tokenizer::CheckCanEncode() const {
  if (pre_tokenizer_ == TokenizerJson::PreTokenizer::kReleased) return;
  throw Error(
      Code::kUnsupported,
      name_ + ": encoding text with the GPT-2 pre_tokenizer is not supported, only decoding");
}

void Tokenizer::AppendPlain(std::string_view valid_text, std::vector<TokenId>* out) const {
  for (const std::string_view piece : PreTokenize(valid_text)) bpe_.Encode(piece, out);
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text) const {
  const TextSpan all{TextSpan::Kind::kTrusted, std::string(text)};
  return EncodeSpans({&all, 1});
}

std::vector<TokenId> Tokenizer::EncodePlain(std::string_view text) const {
  const TextSpan all{TextSpan::Kind::kPlain, std::string(text)};
  return EncodeSpans({&all, 1});
}

std::vector<TokenId> Tokenizer::EncodeSpans(std::span<const TextSpan> spans) const {
  CheckCanEncode();
  std::vector<TokenId> ids;
  std::string plain;  // text since the last added token
  const auto add_token = [&](TokenId id) {
    AppendPlain(plain, &ids);
    plain.clear();
    ids.push_back(id);
  };
  for (const TextSpan& span : spans) {
    if (span.kind == TextSpan::Kind::kToken) {
      const std::optional<TokenId> id = IdOf(span.text);
      if (!id)
        throw Error(Code::kUnsupported, fmt::format("{}: no added token {}", name_, span.text));
      add_token(*id);
      continue;
    }
    const std::string text = ReplaceInvalidUtf8(span.text);
    if (span.kind == TextSpan::Kind::kPlain) {
      plain += text;
      continue;
    }
    for (const AddedTokens::Segment& segment : added_tokens_.Split(text)) {
      if (segment.id >= 0) {
        add_token(segment.id);
      } else {
        plain += segment.text;
      }
    }
  }
  AppendPlain(plain, &ids);
  return ids;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    bytes += TokenBytes(id);
  }
  return ReplaceInvalidUtf8(bytes);
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  CheckId(id);
  return bytes_[id];
}

const std::string& Tokenizer::Spelling(TokenId id) const {
  CheckId(id);
  return spellings_[id];
}

bool Tokenizer::IsSpecial(TokenId id) const {
  CheckId(id);
  return special_[id];
}

std::optional<TokenId> Tokenizer::IdOf(std::string_view content) const {
  const auto found = added_ids_.find(std::string(content));
  if (found == added_ids_.end()) return std::nullopt;
  return found->second;
}

std::string StreamDecoder::Push(TokenId id) {
  if (skip_special_ && tokenizer_.IsSpecial(id)) return {};
  tail_ += tokenizer_.TokenBytes(id);
  size_t certain = 0;  // bytes in front of a character that is still incomplete
  while (certain < tail_.size()) {
    const Utf8Step step = ReadUtf8(tail_, certain);
    if (step.kind == Utf8Step::kTruncated) break;
    certain += step.bytes;
  }
  std::string text = ReplaceInvalidUtf8(std::string_view(tail_).substr(0, certain));
  tail_.erase(0, certain);
  return text;
}

std::string StreamDecoder::Flush() { return ReplaceInvalidUtf8(std::exchange(tail_, {})); }

}  // namespace deepinfer
