#include "grammar/code_points.h"

#include <algorithm>
#include <string>

#include "tokenizer/unicode.h"

namespace deepinfer {
namespace {

constexpr uint32_t kLast = 0x10FFFF;
constexpr uint32_t kSurrogates = 0xD800, kAfterSurrogates = 0xE000;

std::string Utf8(uint32_t c) {
  std::string text;
  AppendUtf8(c, &text);
  return text;
}

// Cuts a range where the spelling gets longer, then until all tails of a common beginning are in.
void Split(uint32_t low, uint32_t high, std::vector<ByteSequence>* out) {
  for (const uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (low <= last && high > last) {
      Split(low, last, out);
      Split(last + 1, high, out);
      return;
    }
  }
  const std::string first = Utf8(low), last = Utf8(high);
  const int size = static_cast<int>(first.size());
  for (int i = 1; i < size; ++i) {
    const uint32_t tail = (1u << (6 * i)) - 1;
    if ((low & ~tail) == (high & ~tail)) continue;
    if ((low & tail) != 0) {
      Split(low, low | tail, out);
      Split((low | tail) + 1, high, out);
      return;
    }
    if ((high & tail) != tail) {
      Split(low, (high & ~tail) - 1, out);
      Split(high & ~tail, high, out);
      return;
    }
  }
  ByteSequence& sequence = out->emplace_back();
  sequence.size = size;
  for (size_t i = 0; i < first.size(); ++i)
    sequence.bytes[i] = {static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])};
}

}  // namespace

CodePoints::CodePoints(std::initializer_list<Range> ranges) {
  for (const auto& [low, high] : ranges) Add(low, high);
}

CodePoints CodePoints::All() { return {{0, kSurrogates - 1}, {kAfterSurrogates, kLast}}; }

void CodePoints::Add(uint32_t low, uint32_t high) {
  ranges_.emplace_back(low, high);
  std::ranges::sort(ranges_);
  std::vector<Range> joined;
  for (const Range& range : ranges_) {
    if (!joined.empty() && range.first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, range.second);
    } else {
      joined.push_back(range);
    }
  }
  ranges_ = std::move(joined);
}

CodePoints CodePoints::Complement() const {
  CodePoints others;
  uint32_t next = 0;
  for (const auto& [low, high] : ranges_) {
    if (low > next) others.ranges_.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kLast) others.ranges_.emplace_back(next, kLast);
  return others.And(All());
}

CodePoints CodePoints::And(const CodePoints& other) const {
  CodePoints common;
  for (const Range& a : ranges_) {
    for (const Range& b : other.ranges_) {
      const uint32_t low = std::max(a.first, b.first), high = std::min(a.second, b.second);
      if (low <= high) common.ranges_.emplace_back(low, high);
    }
  }
  return common;
}

bool CodePoints::Contains(uint32_t c) const {
  return std::ranges::any_of(ranges_,
                             [c](const Range& r) { return r.first <= c && c <= r.second; });
}

std::vector<ByteSequence> Utf8Sequences(const CodePoints& set) {
  std::vector<ByteSequence> sequences;
  const CodePoints valid = set.And(CodePoints::All());
  for (const auto& [low, high] : valid.ranges()) Split(low, high, &sequences);
  return sequences;
}

}  // namespace deepinfer
