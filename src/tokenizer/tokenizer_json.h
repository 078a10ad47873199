// What a tokenizer.json says, checked.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"

namespace deepinfer {

struct AddedToken {
  TokenId id;
  std::string content;  // not empty, unique
  bool normalized, special;
};

struct TokenizerJson {
  enum class PreTokenizer {
    kReleased,  // the three splits of tokenizer/pretokenizer.h
    kGpt2,      // ByteLevel with its own regex: decoding only
  };
  PreTokenizer pre_tokenizer;
  std::vector<std::string> spellings;  // by id, dense: every id has exactly one
  std::vector<AddedToken> added_tokens;
  std::array<TokenId, 256> byte_ids;  // token of each single byte
  std::vector<Merge> merges;          // by rank, no pair twice
};

// Parses the file's text; `name` stands in front of every error message. Throws Error: kCorrupt for
// malformed or inconsistent content, kUnsupported for anything that byte-level BPE with one of the
// two pre-tokenisers does not need.
TokenizerJson ParseTokenizerJson(std::string_view text, const std::string& name);

// GPT-2's byte characters: bytes 33-126, 161-172 and 174-255 stand for themselves, the other 68 in
// increasing order are U+0100, U+0101, ... ByteOfCharacter gives -1 for a code point that is no
// byte character.
uint32_t CharacterOfByte(uint8_t byte);
int ByteOfCharacter(uint32_t code_point);

}  // namespace deepinfer
