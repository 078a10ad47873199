// What the model wrote, taken apart: reasoning, content and tool calls (spec 07 sections 10 to 13).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/call_arguments.h"
#include "chat/json_value.h"
#include "chat/literal_scanner.h"

namespace deepinfer {

struct OutputParserOptions {
  bool thinking = true;  // the prompt ends with <think>
  // Declared tools as in the request, array or null. Without any the markup of calls is content.
  JsonValue tools;
  bool drop_calls = false;  // tool_choice "none": calls are left out
  // Bring arguments to the types that the tool's schema declares.
  bool coerce = true;
  // false: only </think> ends the reasoning; the markup of calls does not.
  bool calls_in_reasoning = true;
  // <think> and </think> count only where Feed is told that a token stands.
  bool tags_are_tokens = false;
};

// News of one tool call.
struct CallDelta {
  int index;                              // 0, 1, ... in the answer
  std::string name = {};                  // in the first delta of the call, never empty there
  std::string arguments = {};             // goes on the JSON text sent so far
  std::optional<std::string> whole = {};  // in the last delta: all arguments, as JSON text
};

struct OutputDelta {
  std::string reasoning, content;
  std::vector<CallDelta> calls;

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// Fed with the text of an answer in pieces of whole characters. All deltas, put together, are the
// same for every way of cutting the text. For a call they are also `whole`, as JSON, with one
// exception: the call ends inside a string that is being sent. Then the JSON sent stays open, and
// `whole` lacks the parameter.
//
// A tag that is dropped joins what stands around it, before other tags are looked for: no tag that
// counts in content ever stands there. Reasoning in the midst of content joins that likewise.
//
// Holds back the beginning of a tag, white space that may be dropped, a parameter that cannot be
// sent yet, and keeps the values of the call at hand. Time is linear in the text.
class OutputParser {
 public:
  explicit OutputParser(OutputParserOptions options)
      : OutputParser(std::make_shared<const OutputParserOptions>(std::move(options))) {}
  // Parsers of answers to one request share its options.
  explicit OutputParser(std::shared_ptr<const OutputParserOptions> options);
  OutputParser(const OutputParser&) = delete;
  OutputParser& operator=(const OutputParser&) = delete;

  // tag_offsets: where in the text of the whole answer a <think> or </think> token begins, for
  // those of this piece; see tags_are_tokens.
  OutputDelta Feed(std::string_view text, std::span<const int64_t> tag_offsets = {});
  // The answer has ended. Not to be fed again.
  OutputDelta Finish();

 private:
  // kBlock: in a block of calls, between two; text there is dropped.
  enum class State { kReasoning, kContent, kBlock, kName, kArguments };

  std::span<const std::string_view> Literals() const;
  void Scan(std::string_view text, OutputDelta* delta);
  LiteralScanner& Scanner();
  void Text(std::string_view text, OutputDelta* delta);
  void ReasoningText(std::string_view text, OutputDelta* delta);
  void ContentText(std::string_view text, OutputDelta* delta);
  void Tag(std::string_view tag, OutputDelta* delta);
  void ThinkTag(std::string_view tag, OutputDelta* delta);
  void BeginBlock(State state, OutputDelta* delta);
  bool IsToken(int64_t offset);
  void BeginCall(OutputDelta* delta);
  void EndCall(OutputDelta* delta);
  const JsonValue* PropertiesOf(std::string_view tool) const;

  std::shared_ptr<const OutputParserOptions> options_;
  bool has_tools_;
  State state_;
  LiteralScanner in_reasoning_{true}, in_content_{true}, in_calls_{true};
  int64_t offset_ = 0;  // bytes scanned
  std::deque<int64_t> tag_offsets_;
  std::string reasoning_space_;  // white space at the end of the reasoning so far
  std::string content_space_;    // white space that the content begins with
  bool has_content_ = false;
  std::string name_;
  int n_calls_ = 0;
  std::optional<CallArguments> arguments_;  // of the call at hand, unless it is dropped
};

// An answer put together from its deltas.
struct ParsedOutput {
  struct Call {
    std::string name;
    std::string sent;       // fragments of the arguments, put together
    std::string arguments;  // all arguments as JSON text
    bool operator==(const Call&) const = default;
  };
  std::string reasoning, content;
  std::vector<Call> calls;

  void Append(const OutputDelta& delta);
  bool operator==(const ParsedOutput&) const = default;
};

}  // namespace deepinfer
