// Generated answers with tool markup of every shape: nested, unclosed, without its wrapper, cut
// off.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "chat/output_cuts.h"

namespace deepinfer {
namespace {

constexpr int kShapes = 10'000;
const char* const kTags[] = {"<think>",
                             "</think>",
                             "<｜begin▁of▁sentence｜>",
                             "<｜end▁of▁sentence｜>",
                             "<｜DSML｜ calls>",
                             "</｜DSML｜ calls>",
                             "<｜DSML｜ invoke name=\"",
                             "</｜DSML｜ invoke>",
                             "\">"};
const char* const kPieces[] = {"<｜DSML｜ invoke name=\"f\">",
                               "<｜DSML｜ invoke name=\"\">",
                               "<｜DSML｜ parameter name=\"s\" string=\"true\">",
                               "<｜DSML｜ parameter name=\"n\" string=\"false\">",
                               "<｜DSML｜ parameter name=\"input\">",
                               "<｜DSML｜ parameter ",
                               "</｜DSML｜ parameter>",
                               "{\"n\": 1}",
                               "12",
                               "\n",
                               " \u3000",
                               "text",
                               "é漢",
                               "<",
                               "</",
                               "｜DSML｜",
                               "\"",
                               "<｜DSML｜tool_calls>",
                               "< think >"};

template <size_t N>
std::string Pick(const char* const (&list)[N], std::mt19937_64& random) {
  return list[random() % N];
}

// A well-formed block, or what happens when parts of it are left out, repeated or put in each
// other.
std::string Shape(std::mt19937_64& random) {
  std::string text;
  const int n_pieces = static_cast<int>(random() % 12);
  if (random() % 2 == 0) {
    const auto maybe = [&](const std::string& piece) {
      if (random() % 8 != 0) text += piece;
      if (random() % 8 == 0) text += Pick(kPieces, random);
      if (random() % 16 == 0) text += piece;
    };
    for (int block = static_cast<int>(random() % 3); block >= 0; --block) {
      maybe("<｜DSML｜ calls>\n");
      for (int call = static_cast<int>(random() % 3); call >= 0; --call) {
        maybe("<｜DSML｜ invoke name=\"f\">\n");
        for (int n = static_cast<int>(random() % 3); n > 0; --n) {
          maybe(Pick(kPieces, random));
          maybe(Pick(kPieces, random));
          maybe("</｜DSML｜ parameter>\n");
        }
        maybe("</｜DSML｜ invoke>\n");
      }
      maybe("</｜DSML｜ calls>");
    }
  }
  for (int i = 0; i < n_pieces; ++i) {
    std::string piece = random() % 2 == 0 ? Pick(kPieces, random) : Pick(kTags, random);
    if (random() % 12 == 0) {  // cut off between two characters
      const std::vector<std::string_view> characters = Characters(piece);
      piece.resize(
          static_cast<size_t>(characters[random() % characters.size()].data() - piece.data()));
    }
    text.insert(random() % 3 == 0 ? 0 : text.size(), piece);
  }
  return text;
}

// The same with pieces cut in two, and tags that may be dropped between the halves.
std::string Split(const std::string& text, std::mt19937_64& random) {
  std::string result;
  for (const std::string_view character : Characters(text)) {
    if (character == "｜" && random() % 8 == 0) result += Pick(kTags, random);
    result += character;
    if (character == "<" && random() % 8 == 0) result += Pick(kTags, random);
  }
  return result;
}

// The tags that count in reasoning and content with tools declared: none of them gets through.
void ExpectNoTag(const std::string& text) {
  for (const char* tag : {"<think>", "</think>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
                          "<｜DSML｜ calls>"})
    EXPECT_EQ(text.find(tag), std::string::npos) << text;
}

TEST(OutputShapesTest, NoTagReachesContentAndCutsChangeNothing) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  OutputParserOptions options;
  options.tools = ParseJson(R"([{"function": {"name": "f", "parameters": {"properties": {
      "s": {"type": "string"}, "n": {"type": "integer"}}}}}])",
                            "tools");
  int n_calls = 0, n_open = 0;
  for (int i = 0; i < kShapes && !testing::Test::HasFailure(); ++i) {
    const bool split = i % 4 == 0;
    const std::string text = split ? Split(Shape(random), random) : Shape(random);
    SCOPED_TRACE(text);
    options.thinking = random() % 2 == 0;
    const ParsedOutput whole = ParseOutput(options, text);
    // Reasoning that content breaks off does not join what comes later.
    if (!split) ExpectNoTag(whole.reasoning);
    ExpectNoTag(whole.content);
    EXPECT_EQ(whole.content.find("<｜DSML｜ invoke name=\""), std::string::npos);
    for (const ParsedOutput::Call& call : whole.calls) {
      ++n_calls;
      EXPECT_FALSE(call.name.empty());
      ParseJson(call.arguments, "arguments");
      n_open += TryParseJson(call.sent).has_value() ? 0 : 1;
    }
    EXPECT_TRUE(SentAgrees(whole));
    const std::vector<std::string_view> characters = Characters(text);
    EXPECT_EQ(ParsePieces(options, characters), whole);
    for (int i_cuts = 0; i_cuts < 8; ++i_cuts) {
      std::vector<std::string_view> pieces = {""};
      const char* begin = text.data();
      for (const std::string_view c : characters) {
        if (random() % 10 == 0) {
          pieces.push_back({begin, static_cast<size_t>(c.data() - begin)});
          begin = c.data();
        }
      }
      pieces.push_back(std::string_view(text).substr(static_cast<size_t>(begin - text.data())));
      EXPECT_EQ(ParsePieces(options, pieces), whole);
    }
  }
  EXPECT_GT(n_calls, kShapes / 4);
  EXPECT_GT(n_open, 10);
}

}  // namespace
}  // namespace deepinfer
