// Finds fixed texts in a growing text.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

// Lets text through up to the next literal and holds back a tail that may become one. What it finds
// does not depend on how the text is cut. Holds less than the longest literal; time is linear.
class LiteralScanner {
 public:
  // Takes from the front of *text until a literal is complete or nothing is left; appends to
  // *before what is certainly no part of a literal. Returns the literal's index, or -1. The first
  // character of a literal occurs nowhere else in any of them; none is the beginning of another.
  // The list may change between calls only when nothing is held back.
  int Scan(std::span<const std::string_view> literals, std::string_view* text, std::string* before);
  // The text has ended: returns what was held back.
  std::string Flush();

 private:
  std::string held_;
};

}  // namespace deepinfer
