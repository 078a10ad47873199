#include "chat/literal_scanner.h"

#include <utility>

namespace deepinfer {
namespace {

bool BeginsOne(std::span<const std::string_view> literals, std::string_view text) {
  for (const std::string_view literal : literals) {
    if (literal.starts_with(text)) return true;
  }
  return false;
}

int Find(std::span<const std::string_view> literals, std::string_view text) {
  for (size_t i = 0; i < literals.size(); ++i) {
    if (literals[i] == text) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

int LiteralScanner::Scan(std::span<const std::string_view> literals, std::string_view* text,
                         std::string* before) {
  while (!text->empty()) {
    if (held_.empty()) {
      size_t start = 0;
      while (start < text->size() && !BeginsOne(literals, text->substr(start, 1))) ++start;
      before->append(text->substr(0, start));
      text->remove_prefix(start);
      if (text->empty()) break;
    }
    held_.push_back(text->front());
    if (BeginsOne(literals, held_)) {
      text->remove_prefix(1);
      const int found = Find(literals, held_);
      if (found < 0) continue;
      held_.clear();
      return found;
    }
    // No literal begins inside what is held: only the character that broke it is looked at again.
    held_.pop_back();
    before->append(std::exchange(held_, {}));
  }
  return -1;
}

std::string LiteralScanner::Flush() { return std::exchange(held_, {}); }

}  // namespace deepinfer
