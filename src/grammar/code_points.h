// Sets of characters, and how they are spelled in bytes.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace deepinfer {

// Ranges of Unicode scalar values, sorted, apart from each other.
class CodePoints {
 public:
  using Range = std::pair<uint32_t, uint32_t>;

  CodePoints() = default;
  CodePoints(std::initializer_list<Range> ranges);
  // Every character.
  static CodePoints All();

  void Add(uint32_t low, uint32_t high);
  CodePoints Complement() const;
  CodePoints And(const CodePoints& other) const;
  CodePoints Without(const CodePoints& other) const { return And(other.Complement()); }
  bool Contains(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// A run of 1 to 4 bytes, each within its range.
struct ByteSequence {
  int size;
  std::array<std::pair<uint8_t, uint8_t>, 4> bytes;
};

// The UTF-8 of exactly these characters.
std::vector<ByteSequence> Utf8Sequences(const CodePoints& set);

}  // namespace deepinfer
