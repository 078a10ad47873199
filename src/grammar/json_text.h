// JSON text as rules of a grammar.
#pragma once

#include <cstdint>
#include <string_view>

#include "grammar/grammar.h"
#include "grammar/regex.h"

namespace deepinfer {

// One character of the set inside a JSON string: quotes, backslashes and controls escaped, all
// others as they are. in_markup: also the bar of tool-call tags, so that no tag can be spelled.
GrammarBuilder::Fragment JsonSpelling(GrammarBuilder* builder, const CodePoints& set,
                                      bool in_markup);
inline constexpr uint32_t kMarkupBar = 0xFF5C;

// Rules that every JSON grammar needs, made when first asked for. White space between two tokens is
// nothing, one space, or a line break and up to 40 spaces or tabs. Numbers have at most 18 digits
// in front of the point, 18 behind it and 2 in the exponent. Keys of an object may repeat.
class JsonText {
 public:
  JsonText(GrammarBuilder* builder, bool in_markup) : builder_(*builder), in_markup_(in_markup) {}

  int32_t Space();
  int32_t Comma();      // with the space behind it
  int32_t Character();  // of a string, also in any escaped form
  int32_t String();
  int32_t Integer();
  int32_t Number();
  int32_t Boolean();
  int32_t Value();
  int32_t Object();
  int32_t Array();
  // A string other than these, without escapes.
  int32_t StringExcept(std::span<const std::string> words);
  // low and high: decimal integers of at most 18 digits, low <= high.
  GrammarBuilder::Fragment IntegerBetween(int64_t low, int64_t high);

 private:
  GrammarBuilder::Fragment Pattern(std::string_view regex);
  GrammarBuilder::Fragment Member(int32_t value);
  void DefineValues();

  CodePoints Plain() const;  // what needs no escape

  GrammarBuilder& builder_;
  bool in_markup_;
  int32_t space_ = -1, comma_ = -1, character_ = -1, string_ = -1, integer_ = -1, number_ = -1,
          boolean_ = -1, value_ = -1, object_ = -1, array_ = -1;
};

}  // namespace deepinfer
