#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace deepinfer {
namespace {

using nlohmann::json;

constexpr const char* kReleased = DI_SOURCE_DIR "/build/testdata/tokenizer_v41.json";
const std::string kFixtures = DI_SOURCE_DIR "/tests/data/fixtures/tokenizer/";

std::vector<json> Lines(const std::string& name) {
  std::ifstream in(kFixtures + name);
  std::vector<json> out;
  for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
  return out;
}

class ReleasedTokenizer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (std::ifstream(kReleased).good()) tokenizer_ = new Tokenizer(Tokenizer::Load(kReleased));
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    tokenizer_ = nullptr;
  }
  void SetUp() override {
    ASSERT_NE(tokenizer_, nullptr) << kReleased << " is missing: run scripts/test.sh once";
  }
  static Tokenizer* tokenizer_;
};
Tokenizer* ReleasedTokenizer::tokenizer_ = nullptr;

TEST_F(ReleasedTokenizer, EncodeFixtures) {
  const std::vector<json> lines = Lines("encode.jsonl");
  EXPECT_EQ(lines.size(), 387u);
  for (const json& line : lines) {
    SCOPED_TRACE(line["name"]);
    const std::string text = line["text"];
    const std::vector<TokenId> ids = line["ids"];
    EXPECT_EQ(tokenizer_->Encode(text), ids);
    EXPECT_EQ(tokenizer_->EncodePlain(text), line.value("ids_plain", ids));
    EXPECT_EQ(tokenizer_->Decode(ids, false), text);
    EXPECT_EQ(tokenizer_->Decode(ids, true), line.value("decoded_skip_special", text));
  }
}

TEST_F(ReleasedTokenizer, DecodeFixtures) {
  const std::vector<json> lines = Lines("decode.jsonl");
  EXPECT_EQ(lines.size(), 68u);
  for (const json& line : lines) {
    SCOPED_TRACE(line["name"]);
    const std::vector<TokenId> ids = line["ids"];
    const std::string text = line["text"];
    EXPECT_EQ(tokenizer_->Decode(ids, false), text);
    EXPECT_EQ(tokenizer_->Decode(ids, true), line.value("text_skip_special", text));
    StreamDecoder decoder(*tokenizer_);
    std::vector<std::string> deltas;
    for (const TokenId id : ids) deltas.push_back(decoder.Push(id));
    EXPECT_EQ(deltas, line["deltas"].get<std::vector<std::string>>());
    EXPECT_EQ(decoder.Flush(), line["flush"]);
    StreamDecoder skipping(*tokenizer_, /*skip_special=*/true);
    std::string all;
    for (const TokenId id : ids) all += skipping.Push(id);
    EXPECT_EQ(all + skipping.Flush(), line.value("text_skip_special", text));
  }
}

TEST_F(ReleasedTokenizer, InvalidUtf8Fixtures) {
  const std::vector<json> lines = Lines("invalid_utf8.jsonl");
  EXPECT_EQ(lines.size(), 22u);
  for (const json& line : lines) {
    const std::string hex = line["hex"];
    SCOPED_TRACE(hex);
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    EXPECT_EQ(ReplaceInvalidUtf8(bytes), line["text_after_replacement"]);
    EXPECT_EQ(tokenizer_->Encode(bytes), line["ids"].get<std::vector<TokenId>>());
  }
}

// Vocabulary layout of spec 07 sections 2 and 5.
TEST_F(ReleasedTokenizer, KnownIds) {
  EXPECT_EQ(tokenizer_->vocab_size(), 129280);
  EXPECT_EQ(tokenizer_->TokenBytes(3), "!");
  EXPECT_EQ(tokenizer_->TokenBytes(96), "~");
  EXPECT_EQ(tokenizer_->TokenBytes(191), std::string_view("\0", 1));
  EXPECT_EQ(tokenizer_->TokenBytes(201), "\n");
  EXPECT_EQ(tokenizer_->TokenBytes(223), " ");
  EXPECT_EQ(tokenizer_->IdOf("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(tokenizer_->IdOf("<｜end▁of▁sentence｜>"), 1);
  EXPECT_EQ(tokenizer_->IdOf("<｜System｜>"), 128799);
  EXPECT_EQ(tokenizer_->IdOf("<｜deepseek_image｜>"), 129264);
  EXPECT_EQ(tokenizer_->IdOf("the"), std::nullopt);  // not an added token
  EXPECT_TRUE(tokenizer_->IsSpecial(1));
  EXPECT_FALSE(tokenizer_->IsSpecial(128821));
}

TEST_F(ReleasedTokenizer, PlainTextIsEncodedAcrossSpans) {
  using Kind = TextSpan::Kind;
  const std::vector<TextSpan> spans = {{Kind::kToken, "<｜User｜>"},
                                       {Kind::kTrusted, "foo"},
                                       {Kind::kPlain, "bar <think>"},
                                       {Kind::kTrusted, " baz</think>q"}};
  std::vector<TokenId> expected = {128803};
  for (const TokenId id : tokenizer_->EncodePlain("foobar <think> baz")) expected.push_back(id);
  expected.push_back(128822);
  for (const TokenId id : tokenizer_->EncodePlain("q")) expected.push_back(id);
  EXPECT_EQ(tokenizer_->EncodeSpans(spans), expected);
  const TextSpan unknown{Kind::kToken, "<｜nobody｜>"};
  EXPECT_THROW(tokenizer_->EncodeSpans({&unknown, 1}), Error);
}

// The judge is CTest's time limit: a quadratic loop over half a megabyte runs for many minutes,
// this one for seconds.
TEST_F(ReleasedTokenizer, LongRunsAreNotQuadratic) {
  for (const std::string unit : {"a", " ", "\n", "!", "é", "<", "<｜", "漢", "\t \n"}) {
    std::string text;
    while (text.size() < 500'000) text += unit;
    EXPECT_EQ(tokenizer_->Decode(tokenizer_->Encode(text), false), text);
  }
}

TEST_F(ReleasedTokenizer, IdsOutsideTheVocabularyAreRefused) {
  for (const TokenId id : {-1, 129280, 2147483647}) {
    EXPECT_THROW(tokenizer_->Decode({&id, 1}, false), Error);
    EXPECT_THROW(tokenizer_->Decode({&id, 1}, true), Error);
    EXPECT_THROW(StreamDecoder(*tokenizer_).Push(id), Error);
  }
}

TEST(DemoTokenizer, RoundTrip) {
  const Tokenizer t = Tokenizer::Load(DI_SOURCE_DIR "/models/demo/tokenizer.json");
  EXPECT_EQ(t.vocab_size(), 4096);
  EXPECT_EQ(t.IdOf("<｜User｜>"), 4082);
  const std::string text = "The harbour lights went out.\n\n漢字 123456 <｜User｜>";
  EXPECT_EQ(t.Decode(t.Encode(text), false), text);
  EXPECT_EQ(t.Encode(text).back(), 4082);
}

TEST(TinyTokenizer, DecodesAndRefusesToEncode) {
  const Tokenizer t =
      Tokenizer::Load(DI_SOURCE_DIR "/build/testdata/checkpoints/tiny/tokenizer.json");
  EXPECT_EQ(t.vocab_size(), 640);
  EXPECT_EQ(t.IdOf("<|noise|>"), 639);
  EXPECT_EQ(t.TokenBytes(3), std::string_view("\0", 1));  // this file lists the bytes in order
  try {
    t.Encode("x");
    FAIL() << "encoding must be refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("GPT-2"), std::string::npos);
  }
}

}  // namespace
}  // namespace deepinfer
