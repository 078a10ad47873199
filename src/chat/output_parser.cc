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

// Removed wherever they stand, before anything else is looked at.
constexpr std::array kSentence = {kBosToken, kEosToken};
// Tags that count in each state. Without tools only the first two of a list do.
constexpr std::array kInReasoning = {kThinkOpen, kThinkClose, kOpenCalls};
constexpr std::array kInContent = {kThinkOpen, kThinkClose, kOpenCalls, kOpenInvoke};
constexpr std::array kInBlock = {kOpenInvoke};
constexpr std::array kInName = {kEndName};
constexpr std::array kInArguments = {kCloseInvoke, kCloseCalls};

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
      return std::span(kInReasoning).first(has_tools_ ? kInReasoning.size() : 2);
    case State::kContent:
      return std::span(kInContent).first(has_tools_ ? kInContent.size() : 2);
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
  std::string certain;
  while (!text.empty()) {
    certain.clear();
    const int found = sentence_.Scan(kSentence, &text, &certain);
    Scan(certain, &delta);
    if (found >= 0) offset_ += std::ssize(kSentence[static_cast<size_t>(found)]);
  }
  return delta;
}

OutputDelta OutputParser::Finish() {
  OutputDelta delta;
  Scan(sentence_.Flush(), &delta);
  Text(scanner_.Flush(), &delta);
  delta.content += content_space_;
  if (state_ == State::kArguments) EndCall(&delta);
  return delta;
}

void OutputParser::Scan(std::string_view text, OutputDelta* delta) {
  std::string before;
  while (!text.empty()) {
    const std::span<const std::string_view> literals = Literals();
    const size_t left = text.size();
    before.clear();
    const int found = scanner_.Scan(literals, &text, &before);
    offset_ += static_cast<int64_t>(left - text.size());
    Text(before, delta);
    if (found >= 0) Tag(literals[static_cast<size_t>(found)], delta);
  }
}

void OutputParser::Text(std::string_view text, OutputDelta* delta) {
  switch (state_) {
    case State::kReasoning: {
      const size_t end = FindTrailingSpace(text);
      if (end > 0)
        delta->reasoning.append(std::exchange(reasoning_space_, {})).append(text, 0, end);
      reasoning_space_ += text.substr(end);
      break;
    }
    case State::kContent:
      has_content_ = has_content_ || CountSpace(text) < text.size();
      content_space_ += text;
      if (has_content_) delta->content += std::exchange(content_space_, {});
      break;
    case State::kBlock:
      break;
    case State::kName:
      name_ += text;
      break;
    case State::kArguments:
      if (!arguments_ || text.empty()) break;
      std::string sent;
      arguments_->Feed(text, &sent);
      if (!sent.empty()) DeltaOf(n_calls_ - 1, delta).arguments += sent;
      break;
  }
}

void OutputParser::Tag(std::string_view tag, OutputDelta* delta) {
  if (tag == kThinkOpen || tag == kThinkClose) {
    if (options_->tags_are_tokens && !IsToken(offset_ - std::ssize(tag))) {
      Text(tag, delta);
    } else {
      state_ = tag == kThinkOpen ? State::kReasoning : State::kContent;
    }
  } else if (tag == kOpenCalls) {
    state_ = State::kBlock;
    content_space_.clear();
  } else if (tag == kOpenInvoke) {
    state_ = State::kName;
    content_space_.clear();
    name_.clear();
  } else if (tag == kEndName) {
    BeginCall(delta);
  } else {
    EndCall(delta);
  }
}

bool OutputParser::IsToken(int64_t offset) {
  while (!tag_offsets_.empty() && tag_offsets_.front() < offset) tag_offsets_.pop_front();
  return !tag_offsets_.empty() && tag_offsets_.front() == offset;
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
