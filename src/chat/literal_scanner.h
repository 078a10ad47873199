// Finds fixed texts in a growing text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

// Lets text through up to the next literal and holds back a tail that may become one. What it finds
// does not depend on how the text is cut. Time is linear.
//
// A literal that the caller drops from the text joins what stands around it. So it may lie inside
// another one: "<a<b>>" with "<b>" dropped is "<a>". With `joins` the beginning "<a" is held until
// it is clear that nothing will be dropped behind it; without, less than the longest literal is.
class LiteralScanner {
 public:
  explicit LiteralScanner(bool joins = false) : joins_(joins) {}

  // Takes from the front of *text until a literal is complete or nothing is left; appends to
  // *before what is certainly no part of a literal. Returns the literal's index, or -1. Unless the
  // caller drops the literal, what Flush returns comes in front of it. The first character of a
  // literal occurs nowhere else in any of them; none is the beginning of another. The list may
  // change between calls only when nothing is held back.
  int Scan(std::span<const std::string_view> literals, std::string_view* text, std::string* before);
  // The text has ended, or is broken off by the literal just found: returns what was held back.
  std::string Flush();

 private:
  bool joins_;
  std::string held_;                // beginnings of literals, one behind the other
  std::vector<size_t> beginnings_;  // where they begin in held_
};

}  // namespace deepinfer
