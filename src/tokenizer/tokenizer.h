// Byte-level BPE tokenizer of a checkpoint (spec 07 sections 1-5). Immutable after loading; any
// thread may use it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/text_span.h"
#include "base/types.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer_json.h"

namespace deepinfer {

class Tokenizer {
 public:
  // Reads a tokenizer.json. Throws Error naming the file and the field that is malformed or not
  // supported.
  static Tokenizer Load(const std::string& path);
  // The same from text; `name` stands in front of error messages.
  static Tokenizer Parse(std::string_view json, const std::string& name);

  int32_t vocab_size() const { return static_cast<int32_t>(spellings_.size()); }

  // Text to ids, nothing put in front. Invalid UTF-8 is replaced by U+FFFD first. All three throw
  // Error(kUnsupported) when the file's pre-tokeniser is GPT-2's (such a file is for decoding
  // only). Encode turns spellings of added tokens into those tokens; EncodePlain takes them as
  // text.
  std::vector<TokenId> Encode(std::string_view text) const;
  std::vector<TokenId> EncodePlain(std::string_view text) const;
  // A prompt: plain text is encoded in one go between two added tokens, also across spans. Throws
  // Error(kUnsupported) when a span of kind kToken is no added token of this file.
  std::vector<TokenId> EncodeSpans(std::span<const TextSpan> spans) const;

  // Ids to text; bytes that are not UTF-8 become U+FFFD. skip_special leaves out the tokens marked
  // special. Throws Error(kInvalid) for an id outside the vocabulary, as do the other functions
  // that take an id.
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const;

  // The bytes that a token stands for, and its spelling in the file (byte characters).
  std::string_view TokenBytes(TokenId id) const;
  const std::string& Spelling(TokenId id) const;
  // Marked special in the file: begin and end of sentence, padding, placeholders; not the role and
  // thinking tokens.
  bool IsSpecial(TokenId id) const;
  // The added token with this content.
  std::optional<TokenId> IdOf(std::string_view content) const;

 private:
  void CheckId(TokenId id) const;
  void CheckCanEncode() const;
  void AppendPlain(std::string_view valid_text, std::vector<TokenId>* out) const;

  std::string name_;
  TokenizerJson::PreTokenizer pre_tokenizer_;
  std::vector<std::string> spellings_, bytes_;  // by id
  std::vector<bool> special_;                   // by id
  std::unordered_map<std::string, TokenId> added_ids_;
  AddedTokens added_tokens_;
  Bpe bpe_;
};

// Turns a growing list of ids into text. What Push and Flush return, put together, is Decode of all
// the ids.
class StreamDecoder {
 public:
  // The tokenizer must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that became certain: complete characters, and U+FFFD for bytes that can no longer
  // become one.
  std::string Push(TokenId id);
  // The end: a character that was begun becomes U+FFFD.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string tail_;  // begin of a character, at most 3 bytes
};

}  // namespace deepinfer
