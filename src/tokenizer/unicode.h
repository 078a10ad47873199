// Code points: their classes (Unicode 16.0 general categories) and UTF-8 in both directions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

// Major general category; kSpace is the property White_Space (category Z and U+0009..000D, U+0085).
enum class CharClass : uint8_t { kOther, kLetter, kMark, kNumber, kPunctuation, kSymbol, kSpace };

struct CharRange {
  uint32_t first, last;  // code points, both included
  CharClass char_class;
};

// Sorted, disjoint; everything between two ranges is kOther. Generated: unicode_tables.cc.
extern const CharRange kCharRanges[];
extern const int kCharRangeCount;

CharClass ClassOf(uint32_t code_point);

// One step of a UTF-8 decoder.
struct Utf8Step {
  enum Kind : uint8_t {
    kValid,      // a complete sequence of `bytes` bytes that means `code_point`
    kInvalid,    // `bytes` (>= 1) bytes form a maximal subpart that no continuation can repair
    kTruncated,  // the text ends inside a sequence that is valid so far
  } kind;
  int bytes;
  uint32_t code_point;  // U+FFFD unless kValid
};

// Reads the sequence at text[at], at < text.size(). Surrogates, overlong forms and values above
// U+10FFFF are invalid.
Utf8Step ReadUtf8(std::string_view text, size_t at);

void AppendUtf8(uint32_t code_point, std::string* out);

// Replaces every maximal invalid subpart, also a truncated end, by one U+FFFD (Unicode 16.0
// section 3.9; what Python calls errors="replace"). Valid text comes back unchanged.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace deepinfer
