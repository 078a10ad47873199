#include "tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace deepinfer {
namespace {

using nlohmann::json;

// A correct file of 256 bytes, two merges and two added tokens, to be damaged by the tests.
json Minimal() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    AppendUtf8(CharacterOfByte(static_cast<uint8_t>(byte)), &spelling);
    vocab[spelling] = byte;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  const auto added = [](int id, const char* content) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added(258, "<s>"), added(259, "<｜e｜>")}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", true},
            {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"}, {"dropout", nullptr}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
}

std::string ErrorOf(const std::string& text) {
  try {
    Tokenizer::Parse(text, "t.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TokenizerJsonTest, MinimalFileLoads) {
  const Tokenizer t = Tokenizer::Parse(Minimal().dump(), "t.json");
  EXPECT_EQ(t.vocab_size(), 260);
  const std::vector<TokenId> ids = {257, 'd', 259};
  EXPECT_EQ(t.Decode(ids, false), "abcd<｜e｜>");
  EXPECT_EQ(t.Decode(ids, true), "abcd");
}

TEST(TokenizerJsonTest, ByteCharacters) {
  EXPECT_EQ(CharacterOfByte(' '), 0x120u);
  EXPECT_EQ(CharacterOfByte('\n'), 0x10Au);
  EXPECT_EQ(CharacterOfByte(0xAD), 0x143u);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(ByteOfCharacter(CharacterOfByte(static_cast<uint8_t>(byte))), byte);
  }
  EXPECT_EQ(ByteOfCharacter(0x144), -1);
  EXPECT_EQ(ByteOfCharacter(' '), -1);
}

TEST(TokenizerJsonTest, WhatIsNotSupportedIsNamed) {
  const std::vector<std::pair<std::string, std::function<void(json&)>>> cases = {
      {"\"surprise\" is not supported", [](json& j) { j["surprise"] = 1; }},
      {"model.\"cache\" is not supported", [](json& j) { j["model"]["cache"] = 1; }},
      {"truncation: expected null",
       [](json& j) {
         j["truncation"] = {{"max_length", 5}};
       }},
      {"normalizer: expected Sequence, found \"NFC\"",
       [](json& j) {
         j["normalizer"] = {{"type", "NFC"}};
       }},
      {"post_processor: expected ByteLevel",
       [](json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"}};
       }},
      {"decoder: expected ByteLevel",
       [](json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       }},
      {"model: expected BPE, found \"Unigram\"", [](json& j) { j["model"]["type"] = "Unigram"; }},
      {"model.dropout: expected null, found 0.1", [](json& j) { j["model"]["dropout"] = 0.1; }},
      {"model.byte_fallback: expected false", [](json& j) { j["model"]["byte_fallback"] = true; }},
      {"model.ignore_merges: expected false", [](json& j) { j["model"]["ignore_merges"] = true; }},
      {"added_tokens[0].lstrip: expected false",
       [](json& j) { j["added_tokens"][0]["lstrip"] = true; }},
      {"pre_tokenizer: expected Sequence",
       [](json& j) {
         j["pre_tokenizer"] = {{"type", "Whitespace"}};
       }},
      {"pre_tokenizer.add_prefix_space",
       [](json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }},
      {"pre_tokenizer: ByteLevel without splits",
       [](json& j) { j["pre_tokenizer"]["use_regex"] = false; }},
      {"pre_tokenizer: found null", [](json& j) { j["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer: expected the sequence", [](json& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
       }}};
  for (const auto& [message, damage] : cases) {
    json file = Minimal();
    damage(file);
    EXPECT_THAT(ErrorOf(file.dump()), testing::StartsWith("t.json: " + message));
  }
}

TEST(TokenizerJsonTest, OtherSplitsAreRefused) {
  std::string released;
  {
    const json step3 = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const auto split = [](const char* regex) {
      return json{{"type", "Split"},
                  {"pattern", {{"Regex", regex}}},
                  {"behavior", "Isolated"},
                  {"invert", false}};
    };
    json file = Minimal();
    file["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers", {split("\\p{N}{1,3}"), split("[a-z]+"), split("\\s+"), step3}}};
    released = file.dump();
  }
  EXPECT_THAT(ErrorOf(released),
              testing::HasSubstr("pre_tokenizer step 1: not the released model's split"));
}

TEST(TokenizerJsonTest, InconsistentFilesAreNamed) {
  const std::vector<std::pair<std::string, std::function<void(json&)>>> cases = {
      {"model is missing", [](json& j) { j.erase("model"); }},
      {"model.vocab: expected an object", [](json& j) { j["model"]["vocab"] = json::array(); }},
      {"model.vocab: \"abc\": expected an id", [](json& j) { j["model"]["vocab"]["abc"] = -1; }},
      {"model.vocab: \"abc\": expected an id", [](json& j) { j["model"]["vocab"]["abc"] = 1e30; }},
      {"model.vocab: \"abc\": expected an id",
       [](json& j) { j["model"]["vocab"]["abc"] = 4294967296; }},
      {"model.vocab: id 256 is used twice", [](json& j) { j["model"]["vocab"]["abc"] = 256; }},
      {"id 257 has no token",
       [](json& j) {
         j["model"]["vocab"].erase("abc");
         j["model"]["vocab"]["<s>"] = 258;  // listed in both places, as in the released file
       }},
      {"model.vocab: byte 33 has no token",
       [](json& j) {
         j["model"]["vocab"].erase("!");
         j["model"]["vocab"]["!!"] = 33;
       }},
      {"added_tokens: expected an array", [](json& j) { j["added_tokens"] = 7; }},
      {"added_tokens[0]: expected an object", [](json& j) { j["added_tokens"][0] = "x"; }},
      {"added_tokens[0].content: expected a string",
       [](json& j) { j["added_tokens"][0]["content"] = ""; }},
      {"added_tokens[0].special: expected true or false",
       [](json& j) { j["added_tokens"][0]["special"] = 1; }},
      {"added_tokens[1]: \"<s>\" appears twice",
       [](json& j) { j["added_tokens"][1]["content"] = "<s>"; }},
      {"added_tokens[0]: id 5 or content", [](json& j) { j["added_tokens"][0]["id"] = 5; }},
      {"added_tokens[0]: id 258 or content \"ab\"",
       [](json& j) { j["added_tokens"][0]["content"] = "ab"; }},
      {"model.merges: expected an array", [](json& j) { j["model"]["merges"] = "a b"; }},
      {"model.merges[0]: expected two tokens", [](json& j) { j["model"]["merges"][0] = "ab"; }},
      {"model.merges[0]: expected two tokens", [](json& j) { j["model"]["merges"][0] = "a b c"; }},
      {"model.merges[0]: expected two tokens",
       [](json& j) {
         j["model"]["merges"][0] = {"a", 1};
       }},
      {"model.merges[0]: \"ba\" is not in model.vocab",
       [](json& j) {
         j["model"]["merges"][0] = {"b", "a"};
       }},
      {"model.merges[1]: the pair appears twice", [](json& j) {
         j["model"]["merges"][1] = {"a", "b"};
       }}};
  for (const auto& [message, damage] : cases) {
    json file = Minimal();
    damage(file);
    EXPECT_THAT(ErrorOf(file.dump()), testing::StartsWith("t.json: " + message));
  }
}

TEST(TokenizerJsonTest, BrokenTextIsNamed) {
  EXPECT_THAT(ErrorOf(""), testing::StartsWith("t.json: not valid JSON"));
  EXPECT_THAT(ErrorOf("[]"), testing::StartsWith("t.json: expected a JSON object"));
  EXPECT_THAT(ErrorOf("{\"version\": \"\xFF\"}"), testing::StartsWith("t.json: not valid JSON"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')), testing::StartsWith("t.json: not valid JSON"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[') + std::string(1'000'000, ']')),
              testing::StartsWith("t.json: expected a JSON object"));
  const std::string whole = Minimal().dump();
  for (size_t bytes = 0; bytes < whole.size(); bytes += 97) {
    EXPECT_THAT(ErrorOf(whole.substr(0, bytes)), testing::StartsWith("t.json: not valid JSON"));
  }
}

}  // namespace
}  // namespace deepinfer
