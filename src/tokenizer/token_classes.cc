#include "tokenizer/token_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "tokenizer/unicode.h"

namespace deepinfer {
namespace {

std::string Map(std::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t bytes = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &mapped, static_cast<utf8proc_option_t>(options));
  DI_CHECK(bytes >= 0) << utf8proc_errmsg(bytes);
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<size_t>(bytes));
  std::free(mapped);
  return out;
}

// Steps 3 and 4. Full lower case differs from utf8proc's one-to-one mapping for U+0130 only, which
// NFD has decomposed.
std::string WithoutMarksLower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = ReadUtf8(text, at);
    if (ClassOf(step.code_point) != CharClass::kMark) {
      AppendUtf8(
          static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.code_point))),
          &out);
    }
    at += step.bytes;
  }
  return out;
}

std::string CollapseSpaces(std::string_view text) {
  std::string out;
  bool in_run = false;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!space) {
      out.push_back(c);
    } else if (!in_run) {
      out.push_back(' ');
    }
    in_run = space;
  }
  return out;
}

std::string_view StripWhiteSpace(std::string_view text) {
  size_t begin = text.size(), end = 0;  // of what is not white space
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = ReadUtf8(text, at);
    if (ClassOf(step.code_point) != CharClass::kSpace) {
      begin = std::min(begin, at);
      end = at + step.bytes;
    }
    at += step.bytes;
  }
  return end == 0 ? std::string_view() : text.substr(begin, end - begin);
}

}  // namespace

std::string NormalizeForClass(std::string_view text) {
  std::string s = Map(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  s = Map(s, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  s = CollapseSpaces(WithoutMarksLower(s));
  if (s == " ") return s;
  s = StripWhiteSpace(s);
  // Where the reference protects the lone space by U+E000, mapping that back also changes any
  // U+E000 of the text.
  constexpr std::string_view kProtected = "\uE000";
  for (size_t at = s.find(kProtected); at != std::string::npos; at = s.find(kProtected, at)) {
    s.replace(at, kProtected.size(), " ");
  }
  return s;
}

std::vector<int32_t> TokenClasses(const Tokenizer& tokenizer) {
  std::vector<int32_t> classes;
  std::unordered_map<std::string, int32_t> class_of_key;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = tokenizer.Decode({&id, 1}, /*skip_special=*/false);
    std::string key;
    if (text.find("\uFFFD") != std::string::npos) {
      key = tokenizer.Spelling(id);
    } else {
      key = NormalizeForClass(text);
      if (key.empty()) key = text;
    }
    const auto next = static_cast<int32_t>(class_of_key.size());
    classes.push_back(class_of_key.emplace(std::move(key), next).first->second);
  }
  return classes;
}

int32_t NumTokenClasses(const std::vector<int32_t>& classes) {
  return classes.empty() ? 0 : *std::max_element(classes.begin(), classes.end()) + 1;
}

}  // namespace deepinfer
