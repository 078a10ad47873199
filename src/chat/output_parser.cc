#include "chat/output_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "chat/protocol.h"
#include "chat/request.h"

namespace deepinfer {
namespace {

constexpr std::string_view kOpenCalls = "<｜DSML｜ calls>";
constexpr std::string_view kCloseCalls = "</｜DSML｜ calls>";
constexpr std::string_view kOpenInvoke = "<｜DSML｜ invoke name=\"";
constexpr std::string_view kCloseInvoke = "</｜DSML｜ invoke>";
constexpr std::string_view kEndName = "\">";

// Tags that count in each state; those of a sentence are dropped wherever they stand. Without tools
// only the first kThink of a list count.
constexpr std::array kInReasoning = {kBosToken, kEosToken, kThinkOpen, kThinkClose, kOpenCalls};
constexpr std::array kInContent = {kBosToken,   kEosToken,  kThinkOpen,
                                   kThinkClose, kOpenCalls, kOpenInvoke};
constexpr size_t kThink = 4;
constexpr std::array kInBlock = {kBosToken, kEosToken, kOpenInvoke};
constexpr std::array kInName = {kBosToken, kEosToken, kEndName};
constexpr std::array kInArguments = {kBosToken, kEosToken, kCloseInvoke, kCloseCalls};

// Length of the white space (as Python counts it) that the text begins with; of one character.
size_t SpaceAt(std::string_view text) {
  static constexpr std::string_view kSpaces[] = {
      "\t",           "\n",           "\v",           "\f",           "\r",
      "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
      "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
      "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
      "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
      "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
  for (const std::string_view space : kSpaces) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

size_t CountSpace(std::string_view text) {
  size_t n = 0;
  while (const size_t space = SpaceAt(text.substr(n))) n += space;
  return n;
}

// Where the white space at the end begins.
size_t FindTrailingSpace(std::string_view text) {
  size_t end = text.size();
  for (size_t n = 1; n <= std::min<size_t>(end, 3);) {
    if (SpaceAt(text.substr(end - n, n)) == n) {
      end -= n;
      n = 1;
    } else {
      ++n;
    }
  }
  return end;
}

std::string_view Stripped(std::string_view text) {
  text.remove_prefix(CountSpace(text));
  return text.substr(0, FindTrailingSpace(text));
}

CallDelta& DeltaOf(int index, OutputDelta* delta) {
  if (delta->calls.empty() || delta->calls.back().index != index)
    delta->calls.push_back({.index = index});
  return delta->calls.back();
}

}  // namespace

OutputParser::OutputParser(std::shared_ptr<const OutputParserOptions> options)
    : options_(std::move(options)),
      has_tools_(!options_->tools.items.empty()),
      state_(options_->thinking ? State::kReasoning : State::kContent) {}

std::span<const std::string_view> OutputParser::Literals() const {
  switch (state_) {
    case State::kReasoning:
      return std::span(kInReasoning)
          .first(has_tools_ && options_->calls_in_reasoning ? kInReasoning.size() : kThink);
    case State::kContent:
      return std::span(kInContent).first(has_tools_ ? kInContent.size() : kThink);
    case State::kBlock:
      return kInBlock;
    case State::kName:
      return kInName;
    case State::kArguments:
      break;
  }
  return kInArguments;
}

OutputDelta OutputParser::Feed(std::string_view text, std::span<const int64_t> tag_offsets) {
  OutputDelta delta;
  tag_offsets_.insert(tag_offsets_.end(), tag_offsets.begin(), tag_offsets.end());
  Scan(text, &delta);
  return delta;
}

OutputDelta OutputParser::Finish() {
  OutputDelta delta;
  Text(in_calls_.Flush(), &delta);
  ReasoningText(in_reasoning_.Flush(), &delta);
  ContentText(in_content_.Flush(), &delta);
  delta.content += content_space_;
  if (state_ == State::kArguments) EndCall(&delta);
  return delta;
}

LiteralScanner& OutputParser::Scanner() {
  switch (state_) {
    case State::kReasoning:
      return in_reasoning_;
    case State::kContent:
      return in_content_;
    default:
      return in_calls_;
  }
}

void OutputParser::Scan(std::string_view text, OutputDelta* delta) {
  std::string before;
  while (!text.empty()) {
    const std::span<const std::string_view> literals = Literals();
    const size_t left = text.size();
    before.clear();
    const int found = Scanner().Scan(literals, &text, &before);
    offset_ += static_cast<int64_t>(left - text.size());
    Text(before, delta);
    if (found >= 0) Tag(literals[static_cast<size_t>(found)], delta);
  }
}

void OutputParser::Text(std::string_view text, OutputDelta* delta) {
  switch (state_) {
    case State::kReasoning:
      return ReasoningText(text, delta);
    case State::kContent:
      return ContentText(text, delta);
    case State::kBlock:
      return;
    case State::kName:
      name_ += text;
      return;
    case State::kArguments:
      if (!arguments_ || text.empty()) return;
      std::string sent;
      arguments_->Feed(text, &sent);
      if (!sent.empty()) DeltaOf(n_calls_ - 1, delta).arguments += sent;
      return;
  }
}

void OutputParser::ReasoningText(std::string_view text, OutputDelta* delta) {
  const size_t end = FindTrailingSpace(text);
  if (end > 0) delta->reasoning.append(std::exchange(reasoning_space_, {})).append(text, 0, end);
  reasoning_space_ += text.substr(end);
}

void OutputParser::ContentText(std::string_view text, OutputDelta* delta) {
  has_content_ = has_content_ || CountSpace(text) < text.size();
  content_space_ += text;
  if (has_content_) delta->content += std::exchange(content_space_, {});
}

void OutputParser::Tag(std::string_view tag, OutputDelta* delta) {
  if (tag == kBosToken || tag == kEosToken) return;
  if (tag == kThinkOpen || tag == kThinkClose) return ThinkTag(tag, delta);
  Text(Scanner().Flush(), delta);
  if (tag == kOpenCalls) {
    BeginBlock(State::kBlock, delta);
  } else if (tag == kOpenInvoke) {
    BeginBlock(State::kName, delta);
    name_.clear();
  } else if (tag == kEndName) {
    BeginCall(delta);
  } else {
    EndCall(delta);
  }
}

void OutputParser::ThinkTag(std::string_view tag, OutputDelta* delta) {
  if (options_->tags_are_tokens && !IsToken(offset_ - std::ssize(tag))) {
    Text(Scanner().Flush(), delta);
    return Text(tag, delta);
  }
  // Content may go on; then it joins what is held of it.
  ReasoningText(tag == kThinkClose ? in_reasoning_.Flush() : "", delta);
  state_ = tag == kThinkOpen ? State::kReasoning : State::kContent;
}

// From here on nothing is reasoning or content any more.
void OutputParser::BeginBlock(State state, OutputDelta* delta) {
  ReasoningText(in_reasoning_.Flush(), delta);
  ContentText(in_content_.Flush(), delta);
  content_space_.clear();
  state_ = state;
}

// A token counts once: a tag that others were dropped from may end behind it.
bool OutputParser::IsToken(int64_t offset) {
  while (!tag_offsets_.empty() && tag_offsets_.front() < offset) tag_offsets_.pop_front();
  if (tag_offsets_.empty() || tag_offsets_.front() != offset) return false;
  tag_offsets_.pop_front();
  return true;
}

void OutputParser::BeginCall(OutputDelta* delta) {
  state_ = State::kArguments;
  const std::string_view name = Stripped(name_);
  if (name.empty() || options_->drop_calls) return;
  DeltaOf(n_calls_++, delta).name = name;
  arguments_.emplace(options_->coerce ? PropertiesOf(name) : nullptr);
}

void OutputParser::EndCall(OutputDelta* delta) {
  state_ = State::kBlock;
  if (!arguments_) return;
  CallDelta& call = DeltaOf(n_calls_ - 1, delta);
  call.whole = arguments_->Finish(&call.arguments);
  arguments_.reset();
}

const JsonValue* OutputParser::PropertiesOf(std::string_view tool) const {
  const JsonValue* function = FindFunction(options_->tools, tool);
  const JsonValue* parameters = function == nullptr ? nullptr : function->Find("parameters");
  return parameters == nullptr ? nullptr : parameters->Find("properties");
}

void ParsedOutput::Append(const OutputDelta& delta) {
  reasoning += delta.reasoning;
  content += delta.content;
  for (const CallDelta& call : delta.calls) {
    if (!call.name.empty()) calls.push_back({call.name, {}, {}});
    calls.back().sent += call.arguments;
    if (call.whole) calls.back().arguments = *call.whole;
  }
}

}  // namespace deepinfer
