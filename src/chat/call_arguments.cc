#include "chat/call_arguments.h"

#include <array>
#include <utility>

#include "chat/coerce.h"

namespace deepinfer {
namespace {

constexpr std::string_view kOpen = "<｜DSML｜ parameter";
constexpr std::string_view kClose = "</｜DSML｜ parameter>";
constexpr std::string_view kName = "name=\"";
constexpr std::string_view kString = "string=\"";

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

void CallArguments::Feed(std::string_view text, std::string* sent) {
  while (!text.empty()) {
    switch (state_) {
      case State::kOutside:
        text = FeedOutside(text);
        break;
      case State::kHead:
        text = FeedHead(text, sent);
        break;
      case State::kValue:
        text = FeedValue(text, sent);
        break;
      case State::kNextHead:
        text = FeedNextHead(text, sent);
        break;
    }
  }
}

std::string CallArguments::Finish(std::string* sent) {
  arguments_.kind = JsonValue::Kind::kObject;
  const bool open = state_ == State::kValue || state_ == State::kNextHead;
  const JsonValue whole =
      properties_ == nullptr ? std::move(arguments_) : CoerceArguments(arguments_, *properties_);
  std::string json = DumpJson(whole);
  if (!sent_any_) {
    *sent += json;
  } else if (!open || !streams_) {
    *sent += "}";
  }
  return json;
}

// Between parameters: text is ignored.
std::string_view CallArguments::FeedOutside(std::string_view text) {
  std::string ignored;
  if (scanner_.Scan(std::array{kOpen}, &text, &ignored) == 0) {
    BeginHead(State::kHead);
    key_.clear();
    flag_.clear();
  }
  return text;
}

void CallArguments::BeginHead(State state) {
  state_ = state;
  step_ = HeadStep::kSpace;
  matched_ = 0;
  head_.clear();
}

std::string_view CallArguments::FeedHead(std::string_view text, std::string* sent) {
  while (!text.empty()) {
    const char c = text.front();
    const int step = StepHead(c);
    if (step < 0) {
      // Not a head. A later one may begin inside what looked like it, before the fourth quote, so
      // that no character is read again more than a few times.
      state_ = State::kOutside;
      Feed(std::exchange(head_, {}), sent);
      return text;
    }
    head_.push_back(c);
    text.remove_prefix(1);
    if (step > 0) {
      BeginValue(sent);
      return text;
    }
  }
  return text;
}

// white space, name="KEY", perhaps white space and string="FLAG", perhaps white space, >
int CallArguments::StepHead(char c) {
  const auto fixed = [&](std::string_view expected, HeadStep next) {
    if (c != expected[matched_]) return -1;
    if (++matched_ == expected.size()) {
      matched_ = 0;
      step_ = next;
    }
    return 0;
  };
  const auto quoted = [&](std::string* out, HeadStep next) {
    if (c == '"') {
      step_ = next;
    } else {
      out->push_back(c);
    }
    return 0;
  };
  switch (step_) {
    case HeadStep::kSpace:
      if (IsSpace(c)) {
        matched_ = 1;
        return 0;
      }
      if (matched_ == 0) return -1;
      matched_ = 0;
      step_ = HeadStep::kName;
      [[fallthrough]];
    case HeadStep::kName:
      return fixed(kName, HeadStep::kKey);
    case HeadStep::kKey:
      if (c == '"' && key_.empty()) return -1;
      return quoted(&key_, HeadStep::kAfterKey);
    case HeadStep::kAfterKey:
      if (c == '>') return 1;
      if (IsSpace(c)) {
        matched_ = 1;
        return 0;
      }
      if (matched_ == 0) return -1;
      matched_ = 0;
      step_ = HeadStep::kString;
      [[fallthrough]];
    case HeadStep::kString:
      return fixed(kString, HeadStep::kFlag);
    case HeadStep::kFlag:
      return quoted(&flag_, HeadStep::kAfterFlag);
    case HeadStep::kAfterFlag:
      return c == '>' ? 1 : (IsSpace(c) ? 0 : -1);
  }
  return -1;
}

const JsonValue* CallArguments::Property(std::string_view key) const {
  return properties_ == nullptr ? nullptr : properties_->Find(key);
}

void CallArguments::BeginValue(std::string* sent) {
  state_ = State::kValue;
  value_.clear();
  const JsonValue* property = Property(key_);
  const bool may_wrap = properties_ != nullptr && !sent_any_ && MayWrap(key_, *properties_);
  streams_ = flag_ == "true" && !may_wrap && (property == nullptr || KeepsStrings(*property));
  if (!streams_) return;
  SendWrapping(sent);
  SendKey(key_, sent);
  *sent += '"';
}

void CallArguments::AddValue(std::string_view text, std::string* sent) {
  value_ += text;
  if (streams_) AppendJsonCharacters(text, sent);
}

std::string_view CallArguments::FeedValue(std::string_view text, std::string* sent) {
  std::string certain;
  const int found = scanner_.Scan(std::array{kClose, kOpen}, &text, &certain);
  AddValue(certain, sent);
  if (found == 0) {
    EndValue(sent);
    state_ = State::kOutside;
  } else if (found == 1) {
    BeginHead(State::kNextHead);
  }
  return text;
}

// Inside a value, behind what may begin the next head: white space and name= end the value.
std::string_view CallArguments::FeedNextHead(std::string_view text, std::string* sent) {
  while (!text.empty()) {
    if (StepHead(text.front()) < 0) {
      state_ = State::kValue;
      AddValue(kOpen, sent);
      AddValue(std::exchange(head_, {}), sent);
      return text;
    }
    head_.push_back(text.front());
    text.remove_prefix(1);
    if (step_ == HeadStep::kName && matched_ + 1 == kName.size()) {
      EndValue(sent);
      key_.clear();
      flag_.clear();
      state_ = State::kHead;
      return text;
    }
  }
  return text;
}

void CallArguments::EndValue(std::string* sent) {
  JsonValue value;
  value.kind = JsonValue::Kind::kString;
  std::optional<JsonValue> json;
  if (flag_ != "true") json = TryParseJson(value_);
  if (json) {
    value = std::move(*json);
  } else {
    value.text = std::move(value_);
  }
  const auto [place, added] = index_.emplace(key_, arguments_.items.size());
  if (added) {
    arguments_.keys.push_back(key_);
    arguments_.items.emplace_back();
  }
  arguments_.items[place->second] = value;

  if (streams_) {
    *sent += '"';
  } else if (properties_ != nullptr && MayWrap(key_, *properties_) && !sent_any_ &&
             arguments_.keys.size() == 1) {
    wrapping_ = true;
  } else {
    SendWrapping(sent);
    SendKey(key_, sent);
    const JsonValue* property = Property(key_);
    *sent += DumpJson(property == nullptr ? value : CoerceValue(std::move(value), *property));
  }
}

void CallArguments::SendKey(std::string_view key, std::string* sent) {
  *sent += sent_any_ ? ", \"" : "{\"";
  AppendJsonCharacters(key, sent);
  *sent += "\": ";
  sent_any_ = true;
}

// What looked like a wrapping has another argument beside it: it is none.
void CallArguments::SendWrapping(std::string* sent) {
  if (!std::exchange(wrapping_, false)) return;
  SendKey(arguments_.keys[0], sent);
  *sent += DumpJson(arguments_.items[0]);
}

}  // namespace deepinfer
