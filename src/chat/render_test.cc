#include "chat/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "chat/protocol.h"

namespace deepinfer {
namespace {

const std::string kFixtures = DI_SOURCE_DIR "/tests/data/fixtures/chat/";

std::string ReadText(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(kFixtures + name).rdbuf();
  return text.str();
}

std::string Prompt(const std::string& request) {
  return RenderChat(ParseChatRequest(ParseJson(request, "test"))).Text();
}

std::string ErrorOf(const std::string& request) {
  try {
    Prompt(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// Prompts of an existing implementation, byte for byte.
TEST(RenderTest, PromptFixtures) {
  std::istringstream lines(ReadText("encode.jsonl"));
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n) {
    const JsonValue expected = ParseJson(line, "encode.jsonl");
    SCOPED_TRACE(expected.Find("name")->text);
    const ChatPrompt prompt = RenderChat(ParseChatRequest(expected));
    EXPECT_EQ(prompt.Text(), expected.Find("prompt")->text);
    std::vector<int> order;
    if (const JsonValue* images = expected.Find("image_order")) {
      for (const JsonValue& image : images->items)
        order.push_back(static_cast<int>(image.AsInteger().value()));
    }
    EXPECT_EQ(prompt.image_order, order);
  }
  EXPECT_EQ(n, 85);
}

// Keys that clients send: used, or refused by name. null says nothing.
TEST(RenderTest, KeysOfMessagesAreKnownOrRefused) {
  const auto error = [](const std::string& messages) {
    return ErrorOf("{\"messages\": [" + messages + "]}");
  };
  for (const char* key : {"name", "refusal", "audio", "function_call", "annotations", "tool_calls",
                          "reasoning", "tool_call_id", "wo_eos", "tools", "response_format", "x"}) {
    EXPECT_EQ(error(std::string(R"({"role": "user", "content": "a", ")") + key + "\": []}"),
              std::string("messages[0].") + key + ": this field is not supported");
    EXPECT_EQ(error(std::string(R"({"role": "user", "content": "a", ")") + key + "\": null}"),
              "accepted");
  }
  for (const char* role : {"system", "developer", "assistant", "latest_reminder"}) {
    EXPECT_EQ(error(std::string(R"({"role": ")") + role + R"(", "content": "a", "name": "b"})"),
              "messages[0].name: this field is not supported");
  }
  const std::string call = R"({"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
      "index": 0, "function": {"name": "f", "arguments": "{}"}}]})";
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = call;
    return error(text.replace(text.find(from), from.size(), to));
  };
  EXPECT_EQ(error(call), "accepted");
  EXPECT_EQ(changed("\"index\": 0", "\"index\": 1"),
            "messages[0].tool_calls[0].index: expected 0, found 1");
  EXPECT_EQ(changed("\"type\": \"function\"", "\"type\": \"custom\""),
            "messages[0].tool_calls[0].type: expected \"function\", found \"custom\"");
  EXPECT_EQ(changed("\"index\"", "\"x\""),
            "messages[0].tool_calls[0].x: this field is not supported");
  EXPECT_EQ(changed("\"arguments\"", "\"x\""),
            "messages[0].tool_calls[0].function.x: this field is not supported");
  const std::string result = R"(, {"role": "tool", "tool_call_id": "1", "content": "r", "name": )";
  EXPECT_EQ(error(call + result + "\"f\"}"), "accepted");
  EXPECT_EQ(error(call + result + "\"g\"}"),
            "messages[1].name: expected the name of the call that tool_call_id names, \"f\", found "
            "\"g\"");
  EXPECT_EQ(error(R"({"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]})"),
            "messages[0].content[0].x: this field is not supported");
  const auto tool = [](const std::string& fields) {
    return ErrorOf(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{)" + fields +
                   R"("function": {"name": "f", "strict": true}}]})");
  };
  EXPECT_EQ(tool("\"type\": \"function\", "), "accepted");
  EXPECT_EQ(tool("\"type\": \"web_search\", "),
            "tools[0].type: expected \"function\", found \"web_search\"");
  EXPECT_EQ(tool("\"x\": 1, "), "tools[0].x: this field is not supported");
}

TEST(RenderTest, ErrorFixtures) {
  const JsonValue cases = ParseJson(ReadText("encode_errors.json"), "encode_errors.json");
  EXPECT_EQ(cases.items.size(), 14u);
  for (const JsonValue& c : cases.items) {
    SCOPED_TRACE(c.Find("name")->text);
    if (c.Find("vllm_refuses")->boolean) {
      EXPECT_THROW(RenderChat(ParseChatRequest(c)), Error);
    } else {
      EXPECT_NO_THROW(RenderChat(ParseChatRequest(c)));
    }
  }
}

TEST(RenderTest, FixedTexts) {
  const JsonValue strings = ParseJson(ReadText("protocol_strings.json"), "protocol_strings.json");
  EXPECT_EQ(kEffortLine, strings.Find("effort_line")->text);
  EXPECT_EQ(kToolsPrefix, strings.Find("tools_prefix")->text);
  EXPECT_EQ(kToolsSuffix, strings.Find("tools_suffix")->text);
  EXPECT_EQ(kResponseFormat, strings.Find("response_format")->text);
  const JsonValue* bytes = strings.Find("utf8_len");
  EXPECT_EQ(kEffortLine.size(),
            static_cast<size_t>(bytes->Find("effort_line")->AsInteger().value()));
  EXPECT_EQ(kToolsPrefix.size(),
            static_cast<size_t>(bytes->Find("tools_prefix")->AsInteger().value()));
  EXPECT_EQ(kToolsSuffix.size(),
            static_cast<size_t>(bytes->Find("tools_suffix")->AsInteger().value()));
}

TEST(RenderTest, OnlyFixedTextIsTrusted) {
  const ChatPrompt prompt = RenderChat(ParseChatRequest(ParseJson(R"({"kwargs": {"thinking": false},
      "messages": [{"role": "system", "content": "S<think>"}, {"role": "user", "content": "U<｜User｜>"},
        {"role": "assistant", "content": "A", "tool_calls": [{"id": "1", "function": {"name": "n<think>",
          "arguments": {"k</think>": "v｜DSML｜", "j": ["<think>"]}}}]},
        {"role": "tool", "tool_call_id": "1", "content": "</tool_result>"}],
      "tools": [{"function": {"name": "<think>"}}]})",
                                                                  "test")));
  std::string plain;
  for (const TextSpan& span : prompt.spans) {
    if (span.kind == TextSpan::Kind::kPlain) plain += span.text + "|";
  }
  EXPECT_EQ(
      plain,
      "S<think>|{\"name\": "
      "\"<think>\"}|U<｜User｜>|A|n<think>|k</think>|v｜DSML｜|j|[\"<think>\"]|</tool_result>|");
}

TEST(RenderTest, ToolResultsFollowTheOrderOfTheCalls) {
  // Spec 07 section 7 step 3: results are sorted over their own places, the text keeps its place,
  // unknown ids count as 0.
  const std::string prompt =
      Prompt(R"({"kwargs": {"thinking": false}, "messages": [{"role": "assistant", "tool_calls": [
        {"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "f"}}]},
      {"role": "tool", "tool_call_id": "b", "content": "B"}, {"role": "user", "content": "text"},
      {"role": "tool", "tool_call_id": "?", "content": "X"}, {"role": "tool", "tool_call_id": "a", "content": "A"}]})");
  EXPECT_THAT(prompt,
              testing::EndsWith(
                  "<｜User｜><tool_result>X</tool_result>\n\ntext\n\n<tool_result>A</tool_result>"
                  "\n\n<tool_result>B</tool_result><｜Assistant｜></think>"));
}

TEST(RenderTest, ImageOrderFollowsSortedResults) {
  const ChatPrompt prompt =
      RenderChat(ParseChatRequest(ParseJson(R"([{"role": "assistant", "tool_calls": [
        {"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "f"}}]},
      {"role": "tool", "tool_call_id": "b", "content": [{"type": "image_url"}]},
      {"role": "tool", "tool_call_id": "a", "content": [{"type": "image_url"}]}])",
                                            "test")));
  EXPECT_EQ(prompt.image_order, (std::vector<int>{1, 0}));
}

TEST(RenderTest, ArgumentsInTheirForms) {
  const auto parameters = [](const std::string& arguments) {
    const std::string prompt =
        Prompt(R"({"kwargs": {"thinking": false}, "messages": [{"role": "assistant",
        "wo_eos": true, "tool_calls": [{"function": {"name": "f")" +
               arguments + "}}]}]}");
    const size_t begin = prompt.find("\"f\">\n") + 5;
    return prompt.substr(begin, prompt.find("\n</｜DSML｜ invoke>") - begin);
  };
  const auto one = [](const char* text) {
    return std::string("<｜DSML｜ parameter name=\"arguments\" string=\"true\">") + text +
           "</｜DSML｜ parameter>";
  };
  EXPECT_EQ(parameters(""), "");
  EXPECT_EQ(parameters(R"(, "arguments": null)"), "");
  EXPECT_EQ(parameters(R"(, "arguments": "{}")"), "");
  EXPECT_EQ(parameters(R"(, "arguments": "[1]")"), one("[1]"));
  EXPECT_EQ(parameters(R"(, "arguments": "{\"x\": 1e400}")"), one("{\"x\": 1e400}"));
  EXPECT_EQ(parameters(R"(, "arguments": "\"\\\"{}\\\"\"")"),
            one(R"("\"{}\"")"));  // encoded three times
}

TEST(RenderTest, EffortTableOfTheInitialRelease) {
  const EffortTable initial{25, 50, 75, 100, 50};
  const auto effort = [&](const std::string& kwargs) {
    return ParseChatRequest(ParseJson(R"({"messages": [], "kwargs": )" + kwargs + "}", "test"),
                            initial)
        .effort;
  };
  EXPECT_EQ(effort("{}"), 50);
  EXPECT_EQ(effort(R"({"reasoning_effort": null})"), 50);
  EXPECT_EQ(effort(R"({"reasoning_effort": "low"})"), 25);
  EXPECT_EQ(effort(R"({"reasoning_effort": "high"})"), 50);
  EXPECT_EQ(effort(R"({"reasoning_effort": "xhigh"})"), 75);
}

TEST(RenderTest, ErrorsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(7)", "chat request: expected a list of messages"},
      {R"({"messages": 7})", "messages: expected a list"},
      {R"([7])", "messages[0]: expected an object"},
      {R"([{"content": "x"}])", "messages[0].role: expected system"},
      {R"([{"role": 7}])", "messages[0].role: expected a string, found 7"},
      {R"([{"role": "user", "content": 7}])",
       "messages[0].content: expected a string or a list of parts"},
      {R"([{"role": "user", "content": ["x"]}])", "messages[0].content[0]: expected an object"},
      {R"([{"role": "user", "content": [{"type": "video"}]}])",
       "messages[0].content[0].type: expected text or image_url"},
      {R"([{"role": "assistant", "reasoning": 1}])", "messages[0].reasoning: expected a string"},
      {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls: expected a list"},
      {R"([{"role": "assistant", "tool_calls": [{}]}])", "messages[0].tool_calls[0].function.name"},
      {R"([{"role": "assistant", "wo_eos": 1}])", "messages[0].wo_eos: expected true or false"},
      {R"([{"role": "user", "task": "sing"}])", "messages[0].task: expected action"},
      {R"([{"role": "tool", "content": [{"type": "text", "text": "<｜deepseek_image｜>"}]}])",
       "messages[0].content[0].text: the text contains the reserved token"},
      {R"({"messages": [], "tools": {}})", "tools: expected a list"},
      {R"({"messages": [], "tools": [{"name": "f"}]})", "tools[0].function: expected an object"},
      {R"({"messages": [], "api": "v1"})", "api: expected"},
      {R"({"messages": [], "kwargs": []})", "kwargs: expected an object"},
      {R"({"messages": [], "kwargs": {"thinking": "yes"}})", "thinking: expected true or false"},
      {R"({"messages": [], "kwargs": {"thinking_mode": "chat"}})",
       "kwargs.thinking_mode is not supported by api chat"},
      {R"({"messages": [], "api": "encode", "kwargs": {"thinking": true}})",
       "kwargs.thinking is not supported by api encode"},
      {R"({"messages": [], "kwargs": {"thinking": true, "enable_thinking": false}})",
       "kwargs: thinking and enable_thinking"},
      {R"({"messages": [], "kwargs": {"reasoning_effort": "42"}})",
       "reasoning_effort: expected none, low"},
      {R"({"kwargs": {"thinking": false}, "messages": [{"role": "developer", "content": ""}]})",
       "developer message: the content must not be empty"}};
  for (const auto& [request, message] : cases)
    EXPECT_THAT(ErrorOf(request), testing::StartsWith(message)) << request;
}

}  // namespace
}  // namespace deepinfer
