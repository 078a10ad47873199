// Generated answers with tool markup of every shape: nested, unclosed, without its wrapper,
// repeated, cut off; in every state that an answer can begin in.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "chat/output_cuts.h"

namespace deepinfer {
namespace {

constexpr int kShapes = 10'000;
constexpr std::string_view kPlain = "§";  // stands in front of spellings that are no tokens

const char* const kThinkTags[] = {"<think>", "</think>"};
const char* const kTags[] = {"<｜begin▁of▁sentence｜>",
                             "<｜end▁of▁sentence｜>",
                             "<｜DSML｜ calls>",
                             "</｜DSML｜ calls>",
                             "<｜DSML｜ invoke name=\"",
                             "</｜DSML｜ invoke>",
                             "\">"};
const char* const kPieces[] = {"<｜DSML｜ invoke name=\"f\">",
                               "<｜DSML｜ invoke name=\"\">",
                               "<｜DSML｜ invoke name='f'>",
                               "<｜DSML｜ parameter name=\"s\" string=\"true\">",
                               "<｜DSML｜ parameter name=\"n\" string=\"false\">",
                               "<｜DSML｜ parameter name=\"input\">",
                               "<｜DSML｜ parameter name=\"s\" string=\"maybe\" >",
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
                               "<｜DSML｜invoke name=\"f\">",
                               "<｜tool▁calls▁begin｜>",
                               "< think >"};
const char* const kNames[] = {"f", "get_weather", " f ", "天気", "no::such", "a>b", "F"};
const char* const kKeys[] = {"s", "n", "x", "o", "l", "input", "arguments", "schlüssel", "a b"};
const char* const kFlags[] = {" string=\"true\"", " string=\"false\"", "", " string=\"\"",
                              "  string=\"no\"  "};
const char* const kTools = R"([
  {"function": {"name": "f", "parameters": {"properties": {
    "s": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": ["number", "null"]},
    "o": {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "number"}}},
    "l": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}}}}},
  {"function": {"name": "get_weather", "parameters": {"properties": {
    "s": {"enum": ["a", 1, null]}, "input": {"type": "object"}}}}},
  {"function": {"name": "天気"}}])";

using Random = std::mt19937_64;

template <size_t N>
std::string Pick(const char* const (&list)[N], Random& random) {
  return list[random() % N];
}

// A text, and where in it tags stand that are tokens.
struct Shape {
  std::string text;
  std::vector<int64_t> tag_offsets;

  void Add(std::string_view piece) { text += piece; }
  void AddThinkTag(bool is_token, Random& random) {
    if (is_token)
      tag_offsets.push_back(std::ssize(text));
    else
      text += kPlain;
    text += Pick(kThinkTags, random);
  }
};

// JSON of any type, now and then not quite.
std::string Value(Random& random, int depth = 0) {
  const char* const scalars[] = {"1",     "-0",          "2.50",    "1e400",      "true", "null",
                                 "\"a\"", "\"\\u00e9\"", "\"\\n\"", "\"§<think>", "tru",  "{"};
  const uint64_t kind = random() % (depth < 3 ? 5 : 3);
  if (kind < 3) return Pick(scalars, random);
  std::string text = kind == 3 ? "[" : "{";
  for (uint64_t n = random() % 3; n > 0; --n) {
    if (kind == 4) text += "\"" + Pick(kKeys, random) + "\": ";
    text += Value(random, depth + 1);
    if (n > 1) text += ", ";
  }
  if (random() % 12 != 0) text += kind == 3 ? "]" : "}";
  return text;
}

std::string Parameter(Random& random) {
  std::string text =
      "<｜DSML｜ parameter name=\"" + Pick(kKeys, random) + "\"" + Pick(kFlags, random) + ">";
  if (random() % 12 == 0) text += Pick(kPieces, random);
  text += Value(random);
  if (random() % 10 != 0) text += "</｜DSML｜ parameter>";
  return text + "\n";
}

// A well-formed block, or what happens when parts of it are left out, repeated or followed by
// others.
void AddBlock(Shape* shape, Random& random) {
  const auto maybe = [&](const std::string& piece) {
    if (random() % 8 != 0) shape->Add(piece);
    if (random() % 8 == 0) shape->Add(Pick(kPieces, random));
    if (random() % 16 == 0) shape->Add(piece);
  };
  maybe("<｜DSML｜ calls>\n");
  for (uint64_t call = random() % 3 + 1; call > 0; --call) {
    maybe("<｜DSML｜ invoke name=\"" + Pick(kNames, random) + "\">\n");
    for (uint64_t n = random() % 4; n > 0; --n) maybe(Parameter(random));
    maybe("</｜DSML｜ invoke>\n");
  }
  maybe("</｜DSML｜ calls>");
}

void AddPieces(Shape* shape, bool tags_are_tokens, Random& random) {
  for (uint64_t n = random() % 8; n > 0; --n) {
    if (random() % 4 == 0) {
      shape->AddThinkTag(!tags_are_tokens || random() % 2 == 0, random);
      continue;
    }
    std::string piece = random() % 2 == 0 ? Pick(kPieces, random) : Pick(kTags, random);
    if (random() % 12 == 0) {  // cut off between two characters
      const std::vector<std::string_view> characters = Characters(piece);
      piece.resize(
          static_cast<size_t>(characters[random() % characters.size()].data() - piece.data()));
    }
    shape->Add(piece);
  }
}

Shape AnyShape(bool tags_are_tokens, Random& random) {
  Shape shape;
  AddPieces(&shape, tags_are_tokens, random);
  for (uint64_t blocks = random() % 3; blocks > 0; --blocks) {
    AddBlock(&shape, random);
    if (random() % 2 == 0) AddPieces(&shape, tags_are_tokens, random);
  }
  if (random() % 4 == 0 && !shape.text.empty()) {  // the answer was cut off
    const std::vector<std::string_view> characters = Characters(shape.text);
    shape.text.resize(
        static_cast<size_t>(characters[random() % characters.size()].data() - shape.text.data()));
    while (!shape.tag_offsets.empty() && shape.tag_offsets.back() >= std::ssize(shape.text))
      shape.tag_offsets.pop_back();
  }
  return shape;
}

// The same with pieces cut in two, and tags that may be dropped between the halves.
std::string Split(const std::string& text, Random& random) {
  const auto tag = [&] {
    return random() % 2 == 0 ? Pick(kThinkTags, random) : Pick(kTags, random);
  };
  std::string result;
  for (const std::string_view character : Characters(text)) {
    if (character == "｜" && random() % 8 == 0) result += tag();
    result += character;
    if (character == "<" && random() % 8 == 0) result += tag();
  }
  return result;
}

// Cuts in front of one character in `one_in`, on average.
ParsedOutput ParseCut(const OutputParserOptions& options, const Shape& shape, uint64_t one_in,
                      Random& random) {
  OutputParser parser(options);
  ParsedOutput result;
  const std::string_view text = shape.text;
  std::span<const int64_t> tags = shape.tag_offsets;
  size_t begin = 0;
  const auto feed = [&](size_t end) {
    size_t n = 0;
    while (n < tags.size() && tags[n] < static_cast<int64_t>(end)) ++n;
    result.Append(parser.Feed(text.substr(begin, end - begin), tags.first(n)));
    tags = tags.subspan(n);
    begin = end;
  };
  for (const std::string_view c : Characters(text)) {
    if (random() % one_in == 0) feed(static_cast<size_t>(c.data() - text.data()));
  }
  feed(text.size());
  result.Append(parser.Finish());
  return result;
}

int Count(std::string_view text, std::string_view what) {
  int n = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

// The text without the tags that are dropped in reasoning and content.
std::string WithoutTags(const OutputParserOptions& options, const Shape& shape) {
  std::string text = shape.text;
  const auto drop = [&](std::string_view tag, size_t from) {
    if (text.compare(from, tag.size(), tag) == 0) text.erase(from, tag.size());
  };
  const auto drop_all = [&](std::string_view tag) {
    for (size_t at = text.find(tag); at != text.npos; at = text.find(tag, at)) drop(tag, at);
  };
  for (size_t i = shape.tag_offsets.size(); options.tags_are_tokens && i-- > 0;) {
    for (const char* const tag : kThinkTags) drop(tag, static_cast<size_t>(shape.tag_offsets[i]));
  }
  drop_all("<｜begin▁of▁sentence｜>");
  drop_all("<｜end▁of▁sentence｜>");
  for (const char* const tag : kThinkTags) {
    if (!options.tags_are_tokens) drop_all(tag);
  }
  return text;
}

// Nothing that counts as a tag in its state has come through.
void ExpectNoTag(const OutputParserOptions& options, const std::string& text, bool is_content) {
  for (const char* tag : {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"})
    EXPECT_EQ(Count(text, tag), 0) << text;
  for (const std::string tag : kThinkTags) {
    const int plain = options.tags_are_tokens ? Count(text, std::string(kPlain) + tag) : 0;
    EXPECT_EQ(Count(text, tag), plain) << text;
  }
  if (options.tools.items.empty()) return;
  if (is_content || options.calls_in_reasoning) {
    EXPECT_EQ(Count(text, "<｜DSML｜ calls>"), 0) << text;
  }
  if (is_content) {
    EXPECT_EQ(Count(text, "<｜DSML｜ invoke name=\""), 0) << text;
  }
}

// Without tools their markup is text, all of it.
void ExpectMarkupStays(const OutputParserOptions& options, const Shape& shape,
                       const ParsedOutput& output) {
  EXPECT_TRUE(output.calls.empty());
  const std::string text = WithoutTags(options, shape);
  for (const char* const markup : {"<｜DSML｜ calls>", "<｜DSML｜ invoke name=\"",
                                   "<｜DSML｜ parameter", "</｜DSML｜ invoke>"}) {
    const int n = Count(shape.text, markup);
    if (Count(text, markup) > n) continue;
    EXPECT_EQ(Count(output.reasoning, markup) + Count(output.content, markup), n);
  }
}

TEST(OutputShapesTest, NoTagReachesContentAndCutsChangeNothing) {
  const int seed = testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(static_cast<uint64_t>(seed));
  const JsonValue tools = ParseJson(kTools, "tools");
  int n_calls = 0, n_open = 0;
  for (int i = 0; i < kShapes && !testing::Test::HasFailure(); ++i) {
    OutputParserOptions options;
    options.thinking = random() % 2 == 0;
    if (random() % 8 != 0) options.tools = tools;
    options.drop_calls = random() % 8 == 0;  // tool_choice "none"
    options.tags_are_tokens = random() % 3 == 0;
    options.coerce = random() % 8 != 0;
    options.calls_in_reasoning = random() % 8 != 0;
    Shape shape = AnyShape(options.tags_are_tokens, random);
    const bool split = !options.tags_are_tokens && random() % 4 == 0;
    if (split) shape.text = Split(shape.text, random);
    SCOPED_TRACE(testing::Message()
                 << "thinking " << options.thinking << ", tools " << options.tools.items.size()
                 << ", drop " << options.drop_calls << ", tokens " << options.tags_are_tokens
                 << ", text " << shape.text);
    const ParsedOutput whole = ParseCut(options, shape, ~uint64_t{0}, random);
    ExpectNoTag(options, whole.content, true);
    // Reasoning that content breaks off does not join what comes later.
    if (!split) ExpectNoTag(options, whole.reasoning, false);
    if (!split && options.tools.items.empty()) ExpectMarkupStays(options, shape, whole);
    EXPECT_TRUE(whole.calls.empty() || !options.drop_calls);
    for (const ParsedOutput::Call& call : whole.calls) {
      ++n_calls;
      EXPECT_FALSE(call.name.empty());
      ParseJson(call.arguments, "arguments");
      n_open += TryParseJson(call.sent).has_value() ? 0 : 1;
    }
    EXPECT_TRUE(SentAgrees(whole));
    EXPECT_EQ(ParseCut(options, shape, 1, random), whole);
    for (int cut = 0; cut < 6; ++cut) EXPECT_EQ(ParseCut(options, shape, 10, random), whole);
  }
  EXPECT_GT(n_calls, kShapes / 4);
  EXPECT_GT(n_open, 10);
}

}  // namespace
}  // namespace deepinfer
