#include "chat/output_parser.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "chat/output_cuts.h"

namespace deepinfer {
namespace {

const std::string kFixtures = DI_SOURCE_DIR "/tests/data/fixtures/chat/";

std::string ReadText(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(kFixtures + name).rdbuf();
  return text.str();
}

struct Case {
  std::string name, output;
  OutputParserOptions options;
  JsonValue expected;
  JsonValue streamed;  // what the implementation behind the fixtures streams, where that differs
};

std::vector<Case> ReadCases() {
  const JsonValue tools = ParseJson(ReadText("parse_tools.json"), "parse_tools.json");
  std::istringstream lines(ReadText("parse.jsonl"));
  std::vector<Case> cases;
  for (std::string line; std::getline(lines, line);) {
    const JsonValue json = ParseJson(line, "parse.jsonl");
    Case& c = cases.emplace_back();
    c.name = json.Find("name")->text;
    c.output = json.Find("output")->text;
    c.options.thinking = json.Find("thinking")->boolean;
    if (const JsonValue* declared = json.Find("tools"))
      c.options.tools = *tools.Find(declared->text);
    if (const JsonValue* choice = json.Find("tool_choice"))
      c.options.drop_calls = choice->text == "none";
    c.expected = *json.Find("expected");
    if (const JsonValue* streamed = json.Find("stream_char_result")) c.streamed = *streamed;
  }
  return cases;
}

std::string StringOrEmpty(const JsonValue& object, const char* key) {
  const JsonValue* value = object.Find(key);
  return value == nullptr ? "" : value->text;
}

// 1e400 cannot be written as JSON: its digits are kept as text, unlike in the fixture.
std::string ExpectedArguments(const Case& c, std::string text) {
  if (c.name == "val_big_numbers") text.replace(text.find("Infinity"), 8, "\"1e400\"");
  return text;
}

TEST(OutputParserTest, Fixtures) {
  const std::vector<Case> cases = ReadCases();
  EXPECT_EQ(cases.size(), 90u);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const ParsedOutput result = ParseOutput(c.options, c.output);
    EXPECT_EQ(result.reasoning, StringOrEmpty(c.expected, "reasoning"));
    EXPECT_EQ(result.content, StringOrEmpty(c.expected, "content"));
    const JsonValue& calls = *c.expected.Find("tool_calls");
    ASSERT_EQ(result.calls.size(), calls.items.size());
    for (size_t i = 0; i < calls.items.size(); ++i) {
      EXPECT_EQ(result.calls[i].name, calls.items[i].Find("name")->text);
      EXPECT_EQ(result.calls[i].arguments,
                ExpectedArguments(c, calls.items[i].Find("arguments")->text));
    }
  }
}

// Spec 07 section 12. What is sent is the whole result, for all but three of the fixtures:
// a parameter that is cut off or never closed has been sent in part, and a repeated one is sent
// twice, which as JSON is the same.
TEST(OutputParserTest, FixturesCutAnywhere) {
  std::set<std::string> other;
  for (const Case& c : ReadCases()) {
    SCOPED_TRACE(c.name);
    EXPECT_FALSE(FindCutDifference(c.options, c.output).has_value());
    for (const ParsedOutput::Call& call : ParseOutput(c.options, c.output).calls) {
      if (call.sent == call.arguments) continue;
      other.insert(c.name);
      ASSERT_FALSE(c.streamed.is_null());
      // What the other implementation streams there is the beginning of it.
      const std::string theirs = c.streamed.Find("tool_calls")->items[0].Find("arguments")->text;
      EXPECT_TRUE(call.sent.starts_with(theirs)) << call.sent;
      if (c.name == "dup_param") {
        EXPECT_EQ(DumpJson(ParseJson(call.sent, "sent")), call.arguments);
      }
    }
  }
  EXPECT_EQ(other, (std::set<std::string>{"dup_param", "missing_param_close_last", "trunc_3"}));
}

constexpr const char* kTools = R"([{"function": {"name": "f", "parameters": {"properties": {
  "s": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": ["number", "null"]}}}}}])";

OutputParserOptions WithTools(bool thinking = false) {
  OutputParserOptions options;
  options.thinking = thinking;
  options.tools = ParseJson(kTools, "tools");
  return options;
}

std::string Invoke(const std::string& parameters) {
  return "<｜DSML｜ invoke name=\"f\">" + parameters + "</｜DSML｜ invoke>";
}
std::string Parameter(const std::string& key, const std::string& value,
                      const std::string& flag = "true") {
  return "<｜DSML｜ parameter name=\"" + key + "\" string=\"" + flag + "\">" + value +
         "</｜DSML｜ parameter>";
}
std::string Arguments(const std::string& parameters, const OutputParserOptions& options) {
  return ParseOutput(options, Invoke(parameters)).calls.at(0).arguments;
}
std::string Arguments(const std::string& parameters) { return Arguments(parameters, WithTools()); }

TEST(OutputParserTest, StringsAreSentAsTheyCome) {
  OutputParser parser(WithTools());
  std::string sent;
  const auto feed = [&](std::string_view text) {
    std::string news;
    for (const CallDelta& call : parser.Feed(text).calls) news += call.name + call.arguments;
    return news;
  };
  EXPECT_EQ(feed("<｜DSML｜ invoke name=\"f\">"), "f");
  EXPECT_EQ(feed("<｜DSML｜ parameter name=\"s\" string=\"true\">"), "{\"s\": \"");
  EXPECT_EQ(feed("a\n"), "a\\n");
  EXPECT_EQ(feed("b<"), "b");
  EXPECT_EQ(feed("｜DSML"), "");
  EXPECT_EQ(feed("?"), "<｜DSML?");
  EXPECT_EQ(feed("</｜DSML｜ parameter>"), "\"");
  EXPECT_EQ(feed("<｜DSML｜ parameter name=\"n\" string=\"false\">"), "");
  EXPECT_EQ(feed("7"), "");
  EXPECT_EQ(feed("</｜DSML｜ parameter>"), ", \"n\": 7");
  EXPECT_EQ(feed("</｜DSML｜ invoke>"), "}");
}

TEST(OutputParserTest, ReasoningHoldsTrailingSpaceBack) {
  OutputParser parser(OutputParserOptions{});
  EXPECT_EQ(parser.Feed("\n a\u3000 ").reasoning, "\n a");
  EXPECT_EQ(parser.Feed("b\n").reasoning, "\u3000 b");
  EXPECT_TRUE(parser.Feed("</think>").empty());
  EXPECT_EQ(parser.Feed("\n").content, "");
  EXPECT_EQ(parser.Finish().content, "\n");
}

TEST(OutputParserTest, TagsThatAreNoTokensAreText) {
  OutputParserOptions options;
  options.tags_are_tokens = true;
  const std::string text = "say </think> or</think>a <think> b";
  const int64_t at = static_cast<int64_t>(text.rfind("</think>"));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    OutputParser parser(options);
    ParsedOutput result;
    const std::vector<int64_t> tags = {at};
    const bool first = at < static_cast<int64_t>(cut);
    result.Append(parser.Feed(text.substr(0, cut), std::span(tags).first(first ? 1 : 0)));
    result.Append(parser.Feed(text.substr(cut), std::span(tags).subspan(first ? 1 : 0)));
    result.Append(parser.Finish());
    EXPECT_EQ(result.reasoning, "say </think> or");
    EXPECT_EQ(result.content, "a <think> b");
  }
}

TEST(OutputParserTest, CoercionCanBeOff) {
  const std::string parameters = Parameter("n", "7") + Parameter("s", "7", "false");
  OutputParserOptions options = WithTools();
  EXPECT_EQ(Arguments(parameters, options), R"({"n": 7, "s": "7"})");
  options.coerce = false;
  EXPECT_EQ(Arguments(parameters, options), R"({"n": "7", "s": 7})");
}

TEST(OutputParserTest, ValuesOfDeclaredTypes) {
  const auto read = [](const std::string& schema, const std::string& value,
                       const std::string& flag) {
    OutputParserOptions options;
    options.thinking = false;
    options.tools = ParseJson(
        R"([{"function": {"name": "f", "parameters": {"properties": {"k": )" + schema + "}}}}]",
        "tools");
    const std::string arguments = Arguments(Parameter("k", value, flag), options);
    return arguments.substr(6, arguments.size() - 7);
  };
  const struct {
    const char *schema, *value, *flag, *expected;
  } cases[] = {
      {R"({"type": "integer"})", " +007 ", "true", "7"},
      {R"({"type": "integer"})", "-0", "true", "0"},
      {R"({"type": "integer"})", "5.5", "true", "5.5"},  // no integer: JSON
      {R"({"type": "integer"})", "1e400", "true", "\"1e400\""},
      {R"({"type": "number"})", "1e3", "true", "1000"},
      {R"({"type": "number"})", ".5", "true", "0.5"},
      {R"({"type": "number"})", "1e400", "false", "\"1e400\""},
      {R"({"type": "number"})", "-0.0", "false", "0"},
      {R"({"type": "float"})", "2.5", "false", "2.5"},
      {R"({"type": "bool"})", "TRUE", "true", "true"},
      {R"({"type": "boolean"})", "0", "false", "false"},
      {R"({"type": ["string", "null"]})", "NULL", "true", "null"},
      {R"({"type": ["string", "integer"]})", "5", "true", "5"},
      {R"({"type": ["string", "integer"]})", "five", "true", "\"five\""},
      {R"({"enum": [1, "a"]})", "1", "true", "1"},
      {R"({"anyOf": [{"type": "null"}, {"oneOf": [{"type": "object"}]}]})", "{\"a\":1}", "true",
       "{\"a\": 1}"},
      {R"({"type": "array", "items": {"type": "string"}})", "[1,[2]]", "false", "[\"1\", [2]]"},
      {R"({"type": "object", "properties": {"j": {"type": "integer"}}})", "{\"j\":\"3\"}", "false",
       "{\"j\": 3}"},
      {R"({"type": "whatever"})", "3", "false", "\"3\""},
      {R"({})", "3", "false", "\"3\""},
      {R"({"type": "string"})", "[1e400]", "false", "\"[1e400]\""},
  };
  for (const auto& c : cases) EXPECT_EQ(read(c.schema, c.value, c.flag), c.expected) << c.value;
}

TEST(OutputParserTest, WrappedArguments) {
  EXPECT_EQ(Arguments(Parameter("arguments", R"({"n": "1"})")), R"({"n": 1})");
  EXPECT_EQ(Arguments(Parameter("input", R"({"s": 1})", "false")), R"({"s": "1"})");
  EXPECT_EQ(Arguments(Parameter("input", R"({"q": 1})", "false")), R"({"input": {"q": 1}})");
  EXPECT_EQ(Arguments(Parameter("input", "text")), R"({"input": "text"})");
  // Not alone: no wrapping, and what was held back is sent after all.
  const ParsedOutput two = ParseOutput(
      WithTools(), Invoke(Parameter("input", R"({"n": 1})", "false") + Parameter("s", "x")));
  EXPECT_EQ(two.calls[0].arguments, R"({"input": {"n": 1}, "s": "x"})");
  EXPECT_EQ(two.calls[0].sent, two.calls[0].arguments);
  EXPECT_EQ(Arguments(Parameter("input", "1") + Parameter("arguments", R"({"n": 1})")),
            R"({"input": "1", "arguments": "{\"n\": 1}"})");
}

TEST(OutputParserTest, HeadsThatAreNone) {
  const std::string open = "<｜DSML｜ parameter";
  for (const std::string head :
       {"name=\"s\">", " name=s>", " name=\"\">", " name=\"s\" x>", " Name=\"s\">",
        " name=\"s\"string=\"true\">", " name=\"s\" string=\"true\"/>"}) {
    EXPECT_EQ(Arguments(open + head + "x</｜DSML｜ parameter>"), "{}") << head;
    EXPECT_EQ(Arguments(open + head + Parameter("n", "1")), R"({"n": 1})") << head;
    EXPECT_EQ(Arguments(Parameter("s", open + head)).find("{\"s\": \"<"),
              head.starts_with(" name=") ? std::string::npos : 0u)
        << head;
  }
  EXPECT_EQ(Arguments(open + "\n\tname=\"s\"\n>x</｜DSML｜ parameter>"), R"({"s": "x"})");
  // The second head begins inside what could be the first one's name.
  EXPECT_EQ(Arguments(open + " name=\"a" + open + " name=\"s\">x</｜DSML｜ parameter>"),
            R"({"s": "x"})");
}

TEST(OutputParserTest, SentenceTokensAreRemoved) {
  const std::string bos = "<｜begin▁of▁sentence｜>", eos = "<｜end▁of▁sentence｜>";
  const ParsedOutput result = ParseOutput(
      WithTools(true), bos + "r" + eos + "</think>c" + bos + Invoke(Parameter("s", "x" + eos)));
  EXPECT_EQ(result.reasoning, "r");
  EXPECT_EQ(result.content, "c");
  EXPECT_EQ(result.calls[0].arguments, R"({"s": "x"})");
  // What is left counts as one text.
  EXPECT_EQ(ParseOutput(WithTools(true), "r</th" + eos + "ink>c").content, "c");
}

// Nothing that is a tag once others are dropped reaches the content, however it is cut.
TEST(OutputParserTest, DroppedTagsJoinWhatStandsAroundThem) {
  const std::string call = Invoke(Parameter("s", "x"));
  const auto expect = [&](bool thinking, const std::string& text, const std::string& reasoning,
                          const std::string& content, size_t n_calls) {
    SCOPED_TRACE(text);
    const ParsedOutput whole = ParseOutput(WithTools(thinking), text);
    EXPECT_EQ(whole.reasoning, reasoning);
    EXPECT_EQ(whole.content, content);
    EXPECT_EQ(whole.calls.size(), n_calls);
    EXPECT_FALSE(FindCutDifference(WithTools(thinking), text));
  };
  expect(false, "a<｜DSML</think>｜ calls>b" + call, "", "a", 1);
  expect(false, "a<｜DSML</think></think>｜ ca</think>lls>b", "", "a", 0);
  expect(false, "a<｜DSML｜ invoke na</think>me=\"f\">", "", "a", 1);
  expect(false, "a</th</think>ink>b", "", "ab", 0);
  expect(false, "a<｜begin<｜end▁of▁sentence｜>▁of▁sentence｜>b", "", "ab", 0);
  expect(true, "a<｜DSML<think>｜ calls>b" + call, "a", "", 1);
  // Reasoning in the midst of it.
  expect(false, "a<｜DSML<think>r</think>｜ calls>" + call, "r", "a", 1);
  // What was no beginning of a tag stays.
  expect(false, "a<<｜DSML</think>x", "", "a<<｜DSMLx", 0);
  expect(false, "a<<think>r</think>", "r", "a<", 0);
  expect(false, "a<｜DSML</think>", "", "a<｜DSML", 0);
  expect(true, "a<</think>b", "a<", "b", 0);
  expect(true, "a<<｜DSML｜ calls>" + call, "a<", "", 1);
}

TEST(OutputParserTest, CallsInReasoningMayBeText) {
  OutputParserOptions options = WithTools(true);
  options.calls_in_reasoning = false;
  const std::string call = "<｜DSML｜ calls>" + Invoke(Parameter("s", "x")) + "</｜DSML｜ calls>";
  const ParsedOutput result = ParseOutput(options, "a" + call + "</think>b" + call);
  EXPECT_EQ(result.reasoning, "a" + call);
  EXPECT_EQ(result.content, "b");
  EXPECT_EQ(result.calls.size(), 1u);
}

// The judge is CTest's time limit.
TEST(OutputParserTest, LongTextIsLinear) {
  const std::string open = "<｜DSML｜ parameter";
  for (const std::string& unit :
       {std::string("<"), open + " name=\"", open + " ", open, std::string("<｜DSML｜ "),
        Parameter("s", "x"), open + " name=\"s\" string=\"", std::string(" \n")}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    for (const std::string& prefix :
         {std::string(), "<｜DSML｜ invoke name=\"f\">" + open + " name=\"s\" string=\"true\">"}) {
      const std::string whole = prefix + text;
      ParseOutput(WithTools(true), whole);
      OutputParser parser(WithTools(true));
      for (const std::string_view c : Characters(whole)) parser.Feed(c);
      parser.Finish();
    }
  }
}

}  // namespace
}  // namespace deepinfer
