#include "tokenizer/unicode.h"

#include <algorithm>
#include <array>

namespace deepinfer {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

CharClass SearchClass(uint32_t code_point) {
  const CharRange* end = kCharRanges + kCharRangeCount;
  const CharRange* range =
      std::lower_bound(kCharRanges, end, code_point,
                       [](const CharRange& r, uint32_t code) { return r.last < code; });
  return range != end && range->first <= code_point ? range->char_class : CharClass::kOther;
}

// Classes of U+0000..07FF looked up once: most text never leaves this block.
std::array<CharClass, 0x800> MakeLowTable() {
  std::array<CharClass, 0x800> table;
  for (uint32_t code = 0; code < table.size(); ++code) table[code] = SearchClass(code);
  return table;
}

}  // namespace

CharClass ClassOf(uint32_t code_point) {
  static const std::array<CharClass, 0x800> low = MakeLowTable();
  return code_point < low.size() ? low[code_point] : SearchClass(code_point);
}

Utf8Step ReadUtf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {Utf8Step::kValid, 1, lead};
  // Range of the second byte by lead byte: this is what excludes overlong forms, surrogates and >
  // U+10FFFF.
  int length = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Step::kInvalid, 1, kReplacement};
  }
  uint32_t code_point = lead & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {Utf8Step::kTruncated, i, kReplacement};
    const uint8_t next = byte(at + i);
    if (next < low || next > high) return {Utf8Step::kInvalid, i, kReplacement};
    code_point = code_point << 6 | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::kValid, length, code_point};
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = ReadUtf8(text, at);
    if (step.kind == Utf8Step::kValid) {
      out.append(text.substr(at, step.bytes));
    } else {
      AppendUtf8(kReplacement, &out);
    }
    at += step.bytes;
  }
  return out;
}

}  // namespace deepinfer
