#include "grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"

namespace deepinfer {
namespace {

using Fragment = GrammarBuilder::Fragment;

CodePoints PlainInString(bool in_markup) {
  const CodePoints plain = {{0x20, '!'}, {'#', '['}, {']', 0x10FFFF}};
  return in_markup ? plain.Without({{kMarkupBar, kMarkupBar}}) : plain;
}

// Digit strings of equal length. A pattern for those that are at least / at most a bound.
std::string Digits(size_t n) { return n == 0 ? "" : fmt::format("[0-9]{{{}}}", n); }

std::string AtLeast(std::string_view low) {
  if (low.empty()) return "";
  std::string pattern = fmt::format("{}{}", low[0], AtLeast(low.substr(1)));
  if (low[0] < '9')
    pattern += fmt::format("|[{}-9]{}", static_cast<char>(low[0] + 1), Digits(low.size() - 1));
  return "(" + pattern + ")";
}

std::string AtMost(std::string_view high) {
  if (high.empty()) return "";
  std::string pattern = fmt::format("{}{}", high[0], AtMost(high.substr(1)));
  if (high[0] > '0')
    pattern += fmt::format("|[0-{}]{}", static_cast<char>(high[0] - 1), Digits(high.size() - 1));
  return "(" + pattern + ")";
}

std::string Between(std::string_view low, std::string_view high) {
  if (low.empty()) return "";
  if (low[0] == high[0]) return low[0] + Between(low.substr(1), high.substr(1));
  std::string pattern =
      fmt::format("{}{}|{}{}", low[0], AtLeast(low.substr(1)), high[0], AtMost(high.substr(1)));
  if (low[0] + 1 < high[0])
    pattern += fmt::format("|[{}-{}]{}", static_cast<char>(low[0] + 1),
                           static_cast<char>(high[0] - 1), Digits(low.size() - 1));
  return "(" + pattern + ")";
}

// Numbers 0 <= low <= high, without leading zeros.
std::string NaturalsBetween(int64_t low, int64_t high) {
  std::string pattern;
  int64_t power = 10;  // behind the numbers of one length
  for (;; power *= 10) {
    if (low < power) {
      const int64_t last = std::min(high, power - 1);
      pattern += (pattern.empty() ? "" : "|") + Between(std::to_string(low), std::to_string(last));
      if (last == high) return pattern;
      low = power;
    }
  }
}

}  // namespace

CodePoints JsonText::Plain() const { return PlainInString(in_markup_); }

Fragment JsonSpelling(GrammarBuilder* builder, const CodePoints& set, bool in_markup) {
  std::vector<Fragment> forms;
  const CodePoints plain = set.And(PlainInString(in_markup));
  if (!plain.empty()) forms.push_back(builder->Characters(plain));
  static constexpr std::pair<char, const char*> kShort[] = {
      {'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
      {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
  for (const auto& [c, form] : kShort) {
    if (set.Contains(static_cast<uint32_t>(c))) forms.push_back(builder->Text(form));
  }
  if (in_markup && set.Contains(kMarkupBar)) forms.push_back(builder->Text("\\uff5c"));
  for (uint32_t c = 0; c < 0x20; ++c) {
    const bool is_short = c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t';
    if (set.Contains(c) && !is_short) forms.push_back(builder->Text(fmt::format("\\u{:04x}", c)));
  }
  return builder->Choice(forms);
}

Fragment JsonText::Pattern(std::string_view regex) {
  const Spelling as_is = [](GrammarBuilder* b, const CodePoints& set) {
    return b->Characters(set);
  };
  return RegexFragment(regex, /*whole=*/true, as_is, "json", &builder_);
}

int32_t JsonText::Space() {
  if (space_ < 0) space_ = builder_.Rule(Pattern("( |\\n[ \\t]{0,40})?"));
  return space_;
}

int32_t JsonText::Comma() {
  if (comma_ < 0)
    comma_ = builder_.Rule(builder_.Sequence({builder_.Text(","), builder_.Call(Space())}));
  return comma_;
}

int32_t JsonText::Character() {
  if (character_ < 0) {
    // Halves of a surrogate pair only together.
    const Fragment escaped =
        Pattern(R"(\\(["\\/bfnrt]|u([0-9abcefABCEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|)"
                R"([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})))");
    character_ = builder_.Rule(builder_.Choice({builder_.Characters(Plain()), escaped}));
  }
  return character_;
}

int32_t JsonText::String() {
  if (string_ < 0) {
    const Fragment quote = builder_.Text("\""), end = builder_.Text("\"");
    string_ =
        builder_.Rule(builder_.Sequence({quote, builder_.Star(builder_.Call(Character())), end}));
  }
  return string_;
}

int32_t JsonText::Integer() {
  if (integer_ < 0) integer_ = builder_.Rule(Pattern("-?(0|[1-9][0-9]{0,17})"));
  return integer_;
}

int32_t JsonText::Number() {
  if (number_ < 0) {
    number_ =
        builder_.Rule(Pattern(R"(-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+\-]?[0-9]{1,2})?)"));
  }
  return number_;
}

int32_t JsonText::Boolean() {
  if (boolean_ < 0) boolean_ = builder_.Rule(Pattern("true|false"));
  return boolean_;
}

// "key": value
Fragment JsonText::Member(int32_t value) {
  return builder_.Sequence(
      {builder_.Call(String()), builder_.Text(":"), builder_.Call(Space()), builder_.Call(value)});
}

void JsonText::DefineValues() {
  value_ = builder_.DeclareRule();
  object_ = builder_.DeclareRule();
  array_ = builder_.DeclareRule();
  builder_.DefineRule(value_, builder_.Choice({builder_.Call(String()), builder_.Call(Number()),
                                               builder_.Call(Boolean()), builder_.Text("null"),
                                               builder_.Call(object_), builder_.Call(array_)}));
  const auto list = [&](const char* open, Fragment item, const char* close) {
    const Fragment items = builder_.Sequence(
        {builder_.Repeat(builder_.Rule(item), 1, -1, Comma()), builder_.Call(Space())});
    return builder_.Sequence({builder_.Text(open), builder_.Call(Space()), builder_.Optional(items),
                              builder_.Text(close)});
  };
  builder_.DefineRule(object_, list("{", Member(value_), "}"));
  builder_.DefineRule(array_, list("[", builder_.Call(value_), "]"));
}

int32_t JsonText::Value() {
  if (value_ < 0) DefineValues();
  return value_;
}

int32_t JsonText::Object() {
  Value();
  return object_;
}

int32_t JsonText::Array() {
  Value();
  return array_;
}

int32_t JsonText::StringExcept(std::span<const std::string> words) {
  // A tree of the words' characters; from each of its nodes every other character leads out of it.
  std::map<std::string, std::map<std::string, std::string>> tree;  // prefix -> character -> prefix
  tree[""];
  for (const std::string& word : words) {
    std::string prefix;
    for (size_t i = 0; i < word.size();) {
      size_t end = i + 1;
      while (end < word.size() && (static_cast<uint8_t>(word[end]) & 0xC0) == 0x80) ++end;
      const std::string c = word.substr(i, end - i);
      tree[prefix][c] = prefix + c;
      prefix += c;
      tree[prefix];
      i = end;
    }
  }
  const Fragment begin = builder_.Text("\"");
  const Fragment end = builder_.Text("\"");
  const int32_t outside = builder_.Node();
  builder_.Link(outside, builder_.Star(builder_.Characters(Plain())), end.start);
  std::map<std::string, int32_t> nodes;
  for (const auto& [prefix, next] : tree) nodes[prefix] = builder_.Node();
  for (const auto& [prefix, next] : tree) {
    CodePoints others = Plain();
    for (const auto& [c, longer] : next) {
      uint32_t code = static_cast<uint8_t>(c[0]);
      if (c.size() > 1) code &= 0x7Fu >> c.size();
      for (size_t i = 1; i < c.size(); ++i) code = code << 6 | (static_cast<uint8_t>(c[i]) & 0x3F);
      others = others.Without({{code, code}});
      builder_.Link(nodes[prefix], JsonSpelling(&builder_, {{code, code}}, in_markup_),
                    nodes[longer]);
    }
    builder_.Link(nodes[prefix], builder_.Characters(others), outside);
    if (std::ranges::find(words, prefix) == words.end()) builder_.Link(nodes[prefix], end.start);
  }
  builder_.Link(begin.end, nodes[""]);
  return builder_.Rule({begin.start, end.end});
}

Fragment JsonText::IntegerBetween(int64_t low, int64_t high) {
  DI_CHECK(low <= high) << low << " " << high;
  std::string pattern;
  if (low < 0) {
    pattern = fmt::format("-({})", NaturalsBetween(high < 0 ? -high : 1, -low));
    if (high >= 0) pattern += "|";
  }
  if (high >= 0) pattern += fmt::format("({})", NaturalsBetween(std::max<int64_t>(low, 0), high));
  return Pattern(pattern);
}

}  // namespace deepinfer
