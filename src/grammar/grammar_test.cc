// Which texts the grammars of regular expressions and schemas match.
#include "grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "grammar/json_schema.h"
#include "grammar/test_texts.h"

namespace deepinfer {
namespace {

std::string ErrorOf(const std::string& schema) {
  try {
    JsonSchemaGrammar(schema);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CodePointsTest, Utf8OfExactlyTheSet) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 5; ++round) {
    CodePoints set;
    for (int i = 0; i < 4; ++i) {
      constexpr uint32_t kSpans[] = {0x100, 0x1000, 0x11000, 0x110000};
      const auto low = static_cast<uint32_t>(random() % kSpans[i]);
      set.Add(low, static_cast<uint32_t>(std::min<uint64_t>(0x10FFFF, low + random() % 5000)));
    }
    GrammarBuilder builder;
    const auto grammar = builder.Finish(builder.Rule(builder.Characters(set)));
    Automaton automaton(grammar);
    int64_t n_wrong = 0;
    for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
      std::string text;
      if (c < 0x80) {
        text = {static_cast<char>(c)};
      } else if (c < 0x800) {
        text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
      } else if (c < 0x10000) {
        text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
                static_cast<char>(0x80 | (c & 63))};
      } else {
        text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
                static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
      }
      Automaton::State state = automaton.start();
      for (const char b : text) {
        if (state != Automaton::kDead) state = automaton.Step(state, static_cast<uint8_t>(b));
      }
      const bool matches = state != Automaton::kDead && automaton.CanEnd(state);
      const bool surrogate = c >= 0xD800 && c < 0xE000;
      n_wrong += matches != (set.Contains(c) && !surrogate);
    }
    EXPECT_EQ(n_wrong, 0);
  }
}

TEST(RegexGrammarTest, Texts) {
  const struct {
    const char* pattern;
    std::vector<std::string> matching, others;
  } cases[] = {
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"a|b*", {"a", "", "bbb"}, {"ab", "ba"}},
      {"^(a|bc)+?$", {"a", "bca", "aabc"}, {"", "b"}},
      {"a{2,3}", {"aa", "aaa"}, {"a", "aaaa"}},
      {"(?:ab){2}c?", {"abab", "ababc"}, {"ab", "ababab"}},
      {"a{2,}", {"aa", "aaaaaa"}, {"a", ""}},
      {"a{0}b", {"b"}, {"ab"}},
      {"[a-c\\d_-]", {"a", "c", "7", "_", "-"}, {"d", "", "ab"}},
      {"[^a-c]", {"d", "é", "漢", "\n"}, {"a", "\xc3"}},
      {"\\d+\\.\\d*", {"1.", "12.5"}, {".5", "1"}},
      {"\\w\\s\\W", {"a !", "_\t "}, {"a  a", "! !"}},
      {".", {"a", "é", "😀"}, {"\n", "", "ab"}},
      {"\\u00e9\\x41", {"éA"}, {"eA"}},
      {"[\\]\\\\]", {"]", "\\"}, {"["}},
      {"", {""}, {"a"}},
  };
  for (const auto& c : cases) {
    const auto grammar = RegexGrammar(c.pattern);
    for (const std::string& text : c.matching)
      EXPECT_TRUE(Matches(grammar, text)) << c.pattern << " " << text;
    for (const std::string& text : c.others)
      EXPECT_FALSE(Matches(grammar, text)) << c.pattern << " " << text;
  }
}

TEST(RegexGrammarTest, WhatIsNotSupportedIsNamed) {
  for (const auto& [pattern, part] :
       std::vector<std::pair<std::string, std::string>>{{"(", "not closed"},
                                                        {")", "without an opening"},
                                                        {"a**", "quantifier behind"},
                                                        {"*a", "nothing in front"},
                                                        {"[a", "not closed"},
                                                        {"(?=a)", "special kind"},
                                                        {"\\1", "escape \\1"},
                                                        {"\\bx", "escape \\b"},
                                                        {"a{x}", "brace"},
                                                        {"a{3,2}", "wrong way"},
                                                        {"[b-a]", "wrong way"},
                                                        {"a^b", "anchor"},
                                                        {"a$b", "not at the end"},
                                                        {"\\p{L}", "escape \\p"},
                                                        {"a{999999}", "too large"},
                                                        {"[[:alpha:]]", "inside brackets"}}) {
    try {
      RegexGrammar(pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part)) << pattern;
    }
  }
}

TEST(JsonGrammarTest, AnyObject) {
  const auto grammar = JsonObjectGrammar();
  for (const char* text :
       {"{}", "{ }", "{\"a\": 1}", "{\"a\":[1,-2.5e+3,true,null,\"x\\n\\u00e9\\ud83d\\ude00\"]}",
        "{\n  \"a\": {\n    \"b\": []\n  }\n}", "{\"é漢\": \"\\\"\"}"})
    EXPECT_TRUE(Matches(grammar, text)) << text;
  for (const char* text :
       {"", "[]", "{", "{\"a\"}", "{\"a\": 01}", "{\"a\": 1,}", "{\"a\": \"\\ud83d\"}",
        "{\"a\": \"\n\"}", "{\"a\": nul}", "{\"a\": 1} ", "{\"a\": \"\xff\"}", "{\"a\": 1.}"})
    EXPECT_FALSE(Matches(grammar, text)) << text;
}

TEST(JsonGrammarTest, Schemas) {
  const struct {
    const char* schema;
    std::vector<std::string> matching, others;
  } cases[] = {
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
          "required": ["a"], "additionalProperties": false})",
       {R"({"a": 1})", R"({"a":1,"b":"x"})", R"({"a": -5, "b": ""})"},
       {"{}", R"({"b": "x"})", R"({"b": "x", "a": 1})", R"({"a": 1.5})", R"({"a": 1, "c": 2})",
        R"({"a": "1"})", R"({"a": 1,})", R"({,"a": 1})"}},
      {R"({"properties": {"a": {}, "b": {}, "c": {}}})",
       {"{}", R"({"b": 1})", R"({"a": [], "c": {}})"},
       {R"({"d": 1})", R"({"c": 1, "a": 1})"}},
      {R"({"type": "object", "properties": {"ab": true}, "additionalProperties": {"type": "null"}})",
       {R"({"ab": 5})", R"({"a": null})", R"({"abc": null, "é": null})", R"({"ab": 5, "b": null})",
        R"({"": null})"},
       {R"({"abc": 5})", R"({"a": null, "ab": 5})"}},
      {R"({"type": "object", "required": ["x"]})", {R"({"x": 1})", R"({"x": 1, "y": 2})"}, {"{}"}},
      {R"({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2})",
       {"[true]", "[true, false]", "[\n  true\n]"},
       {"[]", "[true,true,true]", "[1]", "[,]"}},
      {R"({"items": {"type": "null"}, "maxItems": 0})", {"[]"}, {"[null]"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("é漢😀")", R"("\n\"")", R"("\ud83d\ude00x")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "string", "pattern": "^[a-z\"]+$"})",
       {R"("ab\"")"},
       {R"("")", R"("A")", R"("ab"")"}},
      {R"({"type": "string", "pattern": "b"})", {R"("abc")", R"("b")"}, {R"("ac")"}},
      {R"({"type": ["integer", "null"]})", {"5", "null", "-0"}, {"1.0", "\"\""}},
      {R"({"type": "integer", "minimum": -12, "exclusiveMaximum": 105})",
       {"-12", "-1", "0", "9", "99", "100", "104"},
       {"-13", "105", "1000", "007", "-"}},
      {R"({"type": "integer", "minimum": 7})", {"7", "10", "999999999999999999"}, {"6", "-8"}},
      {R"({"type": "integer", "exclusiveMinimum": -30, "maximum": -4})",
       {"-4", "-29"},
       {"-3", "-30", "4"}},
      {R"({"type": "number"})", {"1", "-0.5", "1e5", "2E-03"}, {"01", ".5", "1e999", "NaN"}},
      {R"({"enum": ["a", 1, null, {"k": [1, "é"]}]})",
       {R"("a")", "1", "null", R"({"k":[1,"é"]})"},
       {"2", "\"b\""}},
      {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
      {R"({"const": "x\ny"})", {R"("x\ny")"}, {"\"x\""}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]})",
       {"1", "[]", "[1, [2, []]]"},
       {"[\"a\"]"}},
      {R"({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"},
          "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"],
          "additionalProperties": false}}, "$ref": "#/$defs/n"})",
       {R"({"v": 1, "next": {"v": 2, "next": null}})"},
       {R"({"v": 1})", R"({"v": 1, "next": 5})"}},
      {R"({"oneOf": [{"type": "string"}, {"type": "null"}]})", {"null", "\"\""}, {"1"}},
      {R"({"oneOf": [{"type": "object", "properties": {"t": {"const": "a"}, "x": {}}, "required": ["t"]},
          {"type": "object", "properties": {"t": {"const": "b"}}, "required": ["t"]}]})",
       {R"({"t": "a", "x": 1})", R"({"t": "b"})"},
       {R"({"t": "b", "x": 1})"}},
      {R"({"allOf": [{"type": "boolean"}], "title": "T", "description": "d", "default": 1})",
       {"true"},
       {"1"}},
      {"true", {"1", "{\"a\": []}"}, {"", "{\"a\"}"}},
  };
  for (const auto& c : cases) {
    const auto grammar = JsonSchemaGrammar(c.schema);
    for (const std::string& text : c.matching)
      EXPECT_TRUE(Matches(grammar, text)) << c.schema << " " << text;
    for (const std::string& text : c.others)
      EXPECT_FALSE(Matches(grammar, text)) << c.schema << " " << text;
  }
}

TEST(JsonGrammarTest, IntegerBoundsAreExact) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    int64_t low = static_cast<int64_t>(random() % 2500) - 1200;
    int64_t high = low + static_cast<int64_t>(random() % (round < 30 ? 20 : 1500));
    const auto grammar =
        JsonSchemaGrammar("{\"type\": \"integer\", \"minimum\": " + std::to_string(low) +
                          ", \"maximum\": " + std::to_string(high) + "}");
    for (int64_t n = low - 120; n <= high + 120; ++n)
      EXPECT_EQ(Matches(grammar, std::to_string(n)), low <= n && n <= high)
          << low << " " << high << " " << n;
  }
}

TEST(JsonGrammarTest, WhatIsNotSupportedIsNamed) {
  for (const auto& [schema, part] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "array", "uniqueItems": true})",
            "json_schema: the keyword \"uniqueItems\""},
           {R"({"properties": {"a": {"multipleOf": 3}}})",
            "json_schema.properties.a: the keyword \"multipleOf\""},
           {R"({"type": "number", "minimum": 0})", "\"minimum\" is supported for integers"},
           {R"({"type": "integer", "minimum": 0.5})", "minimum: expected an integer"},
           {R"({"type": "string", "format": "date"})", "\"format\""},
           {R"({"type": "string", "pattern": "a", "maxLength": 3})", "beside a length"},
           {R"x({"type": "string", "pattern": "(?=a)"})x", "json_schema.pattern"},
           {R"({"anyOf": [{"type": "null"}], "type": "null"})", "\"type\" is not supported here"},
           {R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})", "0 and 1 may both match"},
           {R"({"allOf": [{}, {}]})", "allOf"},
           {R"({"$ref": "http://x/y"})", "$ref: expected a place"},
           {R"({"$ref": "#/nowhere"})", "#/nowhere is not in the schema"},
           {R"({"$ref": "#"})", "circle"},
           {R"({"$ref": "#/$defs/a", "minimum": 1, "$defs": {"a": {}}})", "\"minimum\""},
           {R"({"type": "thing"})", "type: expected a JSON type"},
           {R"({"enum": []})", "found nothing"},
           {R"({"type": "array", "minItems": 3, "maxItems": 2})", "found nothing"},
           {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
            "found nothing"},
           {R"({"type": "array", "minItems": 1000000})", "minItems: expected an integer"},
           {"[]", "expected a schema"},
           {"{", "not valid JSON"}}) {
    EXPECT_THAT(ErrorOf(schema), testing::HasSubstr(part)) << schema;
  }
}

// Text can be nested only so deep that it can still be closed.
TEST(JsonGrammarTest, DeepNestingStaysCompletable) {
  const auto grammar = JsonSchemaGrammar("true");
  Automaton automaton(grammar);
  Automaton::State state = automaton.start();
  int depth = 0;
  for (;; ++depth) {
    const Automaton::State next = automaton.Step(state, '[');
    if (next == Automaton::kDead) break;
    state = next;
  }
  EXPECT_GT(depth, 30);
  EXPECT_LE(depth, Grammar::kMaxNesting);
  const std::optional<std::string> end = Endings(grammar).Find(&automaton, state);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(*end, std::string(static_cast<size_t>(depth), ']'));
}

}  // namespace
}  // namespace deepinfer
