#include "tokenizer/pretokenizer.h"

#include <cstddef>
#include <cstdint>

#include "tokenizer/unicode.h"

namespace deepinfer {
namespace {

struct Char {
  uint32_t code;
  uint32_t offset;  // of its first byte in the text
  CharClass char_class;
};

bool IsNewline(const Char& c) { return c.code == '\r' || c.code == '\n'; }
bool IsAsciiLetter(const Char& c) { return (c.code | 0x20) >= 'a' && (c.code | 0x20) <= 'z'; }
bool IsAsciiPunctuation(const Char& c) {
  return c.code < 0x80 &&
         (c.char_class == CharClass::kPunctuation || c.char_class == CharClass::kSymbol);
}
bool IsWord(const Char& c) {
  return c.char_class == CharClass::kLetter || c.char_class == CharClass::kMark;
}
bool IsPunctOrSymbol(const Char& c) {
  return c.char_class == CharClass::kPunctuation || c.char_class == CharClass::kSymbol;
}
bool IsSpace(const Char& c) { return c.char_class == CharClass::kSpace; }
bool IsKanaOrHan(const Char& c) {
  return (c.code >= 0x4E00 && c.code <= 0x9FA5) || (c.code >= 0x3040 && c.code <= 0x30FF);
}

template <class Predicate>
size_t SkipWhile(const Char* chars, size_t at, size_t end, Predicate accepts) {
  while (at < end && accepts(chars[at])) ++at;
  return at;
}

// End of the match of split 3 that starts at `at`, or `at` when no alternative matches. `end` is
// the end of the piece.
size_t MatchSplit3(const Char* chars, size_t at, size_t end) {
  const Char& first = chars[at];
  const bool has_next = at + 1 < end;
  // a
  if (IsAsciiPunctuation(first) && has_next && IsAsciiLetter(chars[at + 1])) {
    return SkipWhile(chars, at + 1, end, IsAsciiLetter);
  }
  // b: the optional character may itself be a mark; then it gives itself back if no letter or mark
  // follows.
  if (IsWord(first)) return SkipWhile(chars, at, end, IsWord);
  if (!IsNewline(first) && !IsPunctOrSymbol(first) && has_next && IsWord(chars[at + 1])) {
    return SkipWhile(chars, at + 1, end, IsWord);
  }
  // c
  const size_t punct = first.code == ' ' ? at + 1 : at;
  const size_t punct_end = SkipWhile(chars, punct, end, IsPunctOrSymbol);
  if (punct_end > punct) return SkipWhile(chars, punct_end, end, IsNewline);
  // d, e, f look at the same run of white space.
  if (!IsSpace(first)) return at;
  const size_t run_end = SkipWhile(chars, at, end, IsSpace);
  for (size_t i = run_end; i > at; --i) {
    if (IsNewline(chars[i - 1])) return i;  // d: up to the last line break of the run
  }
  if (run_end == end || run_end == at + 1)
    return run_end;    // e at the end of the piece; f for a single one
  return run_end - 1;  // e: the last space belongs to what follows
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {
    chars_.reserve(text.size() + 1);
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = ReadUtf8(text, at);
      chars_.push_back({step.code_point, static_cast<uint32_t>(at), ClassOf(step.code_point)});
      at += step.bytes;
    }
    n_ = chars_.size();
    chars_.push_back(
        {0, static_cast<uint32_t>(text.size()), CharClass::kOther});  // so that offset[n] exists
  }

  std::vector<std::string_view> Run() {
    for (size_t at = 0; at < n_;) {
      if (chars_[at].char_class == CharClass::kNumber) {
        size_t end = at + 1;
        while (end < n_ && end < at + 3 && chars_[end].char_class == CharClass::kNumber) ++end;
        Emit(at, end);
        at = end;
      } else {
        const bool kana_or_han = IsKanaOrHan(chars_[at]);
        const size_t end = SkipWhile(chars_.data(), at, n_, [&](const Char& c) {
          return c.char_class != CharClass::kNumber && IsKanaOrHan(c) == kana_or_han;
        });
        Split3(at, end);
        at = end;
      }
    }
    return std::move(pieces_);
  }

 private:
  void Split3(size_t at, size_t end) {
    size_t gap = at;  // start of what no alternative matched
    while (at < end) {
      const size_t match_end = MatchSplit3(chars_.data(), at, end);
      if (match_end == at) {
        ++at;
        continue;
      }
      Emit(gap, at);
      Emit(at, match_end);
      at = gap = match_end;
    }
    Emit(gap, end);
  }

  void Emit(size_t begin, size_t end) {
    if (begin == end) return;
    pieces_.push_back(
        text_.substr(chars_[begin].offset, chars_[end].offset - chars_[begin].offset));
  }

  std::string_view text_;
  std::vector<Char> chars_;
  size_t n_ = 0;
  std::vector<std::string_view> pieces_;
};

}  // namespace

std::vector<std::string_view> PreTokenize(std::string_view text) { return Scanner(text).Run(); }

}  // namespace deepinfer
