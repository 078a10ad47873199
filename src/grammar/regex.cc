#include "grammar/regex.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/error.h"

namespace deepinfer {
namespace {

using Fragment = GrammarBuilder::Fragment;

constexpr int64_t kMaxRepeat = 100'000;

CodePoints Digits() { return {{'0', '9'}}; }
CodePoints Word() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CodePoints Space() { return {{'\t', '\r'}, {' ', ' '}}; }
// The ASCII characters on which all agree whether they are digits, letters or spaces.
CodePoints Ascii() { return {{0, 0x1B}, {0x20, 0x7F}}; }
// "." leaves out every line break that either language knows.
CodePoints LineBreaks() { return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}; }

class Parser {
 public:
  Parser(std::string_view pattern, bool whole, const Spelling& spelling, const std::string& what,
         GrammarBuilder* builder)
      : pattern_(pattern), whole_(whole), spelling_(spelling), what_(what), builder_(*builder) {}

  Fragment Run() {
    const Fragment f = Alternatives(/*top=*/true);
    if (!AtEnd()) Fail(Code::kInvalid, "a closing parenthesis without an opening one");
    return f;
  }

 private:
  [[noreturn]] void Fail(Code code, const std::string& found) const {
    throw Error(code, fmt::format("{}: regular expression: expected {}, found {} in front of "
                                  "character {} of \"{}\"",
                                  what_,
                                  code == Code::kInvalid ? "a well-formed one"
                                                         : "one without look-arounds, "
                                                           "back-references and the like",
                                  found, at_ + 1, pattern_));
  }

  bool AtEnd() const { return at_ == pattern_.size(); }
  char Peek() const { return AtEnd() ? '\0' : pattern_[at_]; }
  bool Take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  // The next character of the pattern, decoded.
  uint32_t Character() {
    const auto lead = static_cast<uint8_t>(Peek());
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (AtEnd() || at_ + size > pattern_.size() || (lead >= 0x80 && lead < 0xC2))
      Fail(Code::kInvalid, "the end or bytes that are no UTF-8");
    uint32_t c = size == 1 ? lead : lead & (0x7Fu >> size);
    for (size_t i = 1; i < size; ++i) c = c << 6 | (static_cast<uint8_t>(pattern_[at_ + i]) & 0x3F);
    at_ += size;
    return c;
  }

  Fragment Anything() { return builder_.Star(spelling_(&builder_, CodePoints::All())); }

  Fragment Alternatives(bool top) {
    std::vector<Fragment> alternatives;
    do {
      alternatives.push_back(Pieces(top));
    } while (Take("|"));
    return builder_.Choice(alternatives);
  }

  Fragment Pieces(bool top) {
    std::vector<Fragment> pieces;
    const bool from_start = top && Take("^");
    if (top && !whole_ && !from_start) pieces.push_back(Anything());
    bool to_end = false;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      if (top && Take("$")) {
        to_end = true;
        if (!AtEnd() && Peek() != '|') Fail(Code::kUnsupported, "$ that is not at the end");
        break;
      }
      pieces.push_back(Quantified());
    }
    if (top && !whole_ && !to_end) pieces.push_back(Anything());
    return builder_.Sequence(pieces);
  }

  Fragment Quantified() {
    const Fragment atom = Atom();
    int64_t min = 1, max = 1;
    if (Take("*")) {
      min = 0, max = -1;
    } else if (Take("+")) {
      max = -1;
    } else if (Take("?")) {
      min = 0;
    } else if (!Count(&min, &max)) {
      return atom;
    }
    Take("?");  // lazy: the same texts
    if (Peek() == '+' || Peek() == '*' || Peek() == '?')
      Fail(Code::kUnsupported, "a quantifier behind a quantifier");
    if (min == 0 && max < 0) return builder_.Star(atom);
    return builder_.Repeat(builder_.Rule(atom), min, max);
  }

  // {m}, {m,} or {m,n}; otherwise the brace is a character.
  bool Count(int64_t* min, int64_t* max) {
    const size_t begin = at_;
    if (!Take("{")) return false;
    const std::optional<int64_t> low = Number();
    std::optional<int64_t> high = low;
    if (low && Take(",")) high = Peek() == '}' ? std::optional<int64_t>(-1) : Number();
    if (!low || !high || !Take("}")) Fail(Code::kUnsupported, "a brace that is no quantifier");
    if (*high >= 0 && *high < *low) {
      at_ = begin;
      Fail(Code::kInvalid, "a quantifier whose limits are the wrong way round");
    }
    *min = *low;
    *max = *high;
    return true;
  }

  std::optional<int64_t> Number() {
    int64_t n = 0;
    const size_t begin = at_;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      n = n * 10 + (Peek() - '0');
      if (n > kMaxRepeat) Fail(Code::kUnsupported, "a count that is too large");
    }
    return at_ == begin ? std::nullopt : std::optional<int64_t>(n);
  }

  Fragment Atom() {
    switch (Peek()) {
      case '(':
        return Group();
      case '[':
        return Set(Bracket());
      case '.':
        ++at_;
        return Set(LineBreaks().Complement());
      case '\\':
        return Set(Escape());
      case '*':
      case '+':
      case '?':
      case '{':
        Fail(Code::kInvalid, "a quantifier with nothing in front");
      case '^':
      case '$':
        Fail(Code::kUnsupported, "an anchor inside");
      default: {
        const uint32_t c = Character();
        return Set({{c, c}});
      }
    }
  }

  Fragment Set(const CodePoints& set) { return spelling_(&builder_, set); }

  Fragment Group() {
    ++at_;
    if (!Take("?:") && Peek() == '?') Fail(Code::kUnsupported, "a group of a special kind");
    if (++depth_ > 100) Fail(Code::kUnsupported, "groups nested more than 100 deep");
    const Fragment f = Alternatives(/*top=*/false);
    if (!Take(")")) Fail(Code::kInvalid, "a group that is not closed");
    --depth_;
    return f;
  }

  uint32_t Hex(int digits) {
    uint32_t c = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char h = Peek();
      const int digit = h >= '0' && h <= '9'   ? h - '0'
                        : h >= 'a' && h <= 'f' ? h - 'a' + 10
                        : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                               : -1;
      if (digit < 0) Fail(Code::kInvalid, "a code without its hexadecimal digits");
      c = c * 16 + static_cast<uint32_t>(digit);
    }
    return c;
  }

  CodePoints Escape() {
    ++at_;
    const auto one = [](uint32_t c) { return CodePoints{{c, c}}; };
    const uint32_t c = Character();
    switch (c) {
      case 'd':
        return Digits();
      case 'w':
        return Word();
      case 's':
        return Space();
      // Which other characters are digits, letters or spaces depends on the language.
      case 'D':
        return Ascii().Without(Digits());
      case 'W':
        return Ascii().Without(Word());
      case 'S':
        return Ascii().Without(Space());
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(Hex(2));
      case 'u':
        return one(Hex(4));
      default:
        break;
    }
    if (c >= 0x80 || Word().Contains(c))
      Fail(Code::kUnsupported, fmt::format("the escape \\{}", static_cast<char>(c & 0x7F)));
    return one(c);
  }

  CodePoints Bracket() {
    ++at_;
    const bool negative = Take("^");
    CodePoints set;
    bool has_class = false;
    if (Peek() == ']') Fail(Code::kUnsupported, "a bracket that begins with ]");
    while (Peek() != ']') {
      if (AtEnd()) Fail(Code::kInvalid, "a bracket that is not closed");
      if (Peek() == '[') Fail(Code::kUnsupported, "a bracket inside brackets");
      const bool escaped = Peek() == '\\';
      if (escaped && pattern_.substr(at_).starts_with("\\b"))
        Fail(Code::kUnsupported, "the escape \\b");
      CodePoints item = escaped ? Escape() : Single();
      const bool single =
          item.ranges().size() == 1 && item.ranges()[0].first == item.ranges()[0].second;
      has_class = has_class || !single;
      if (single && Peek() == '-' && !pattern_.substr(at_).starts_with("-]")) {
        ++at_;
        const CodePoints last = Peek() == '\\' ? Escape() : Single();
        const uint32_t low = item.ranges()[0].first, high = last.ranges()[0].second;
        if (last.ranges().size() != 1 || last.ranges()[0].first != high || high < low)
          Fail(Code::kInvalid, "a range whose limits are the wrong way round");
        item = {{low, high}};
      }
      for (const auto& [low, high] : item.ranges()) set.Add(low, high);
    }
    ++at_;
    if (!negative) return set;
    return has_class ? Ascii().Without(set) : set.Complement();
  }

  CodePoints Single() {
    const uint32_t c = Character();
    return {{c, c}};
  }

  std::string_view pattern_;
  bool whole_;
  const Spelling& spelling_;
  const std::string& what_;
  GrammarBuilder& builder_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

GrammarBuilder::Fragment RegexFragment(std::string_view pattern, bool whole,
                                       const Spelling& spelling, const std::string& what,
                                       GrammarBuilder* builder) {
  return Parser(pattern, whole, spelling, what, builder).Run();
}

}  // namespace deepinfer
