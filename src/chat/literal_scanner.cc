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
    // No literal begins inside a beginning: only the character that breaks it is looked at again.
    const bool begins = BeginsOne(literals, text->substr(0, 1));
    if (begins && !joins_) before->append(Flush());
    if (begins) beginnings_.push_back(held_.size());
    held_.push_back(text->front());
    const std::string_view last = std::string_view(held_).substr(beginnings_.back());
    if (!BeginsOne(literals, last)) {
      held_.pop_back();
      before->append(Flush());
      continue;
    }
    text->remove_prefix(1);
    const int found = Find(literals, last);
    if (found < 0) continue;
    held_.resize(beginnings_.back());
    beginnings_.pop_back();
    return found;
  }
  return -1;
}

std::string LiteralScanner::Flush() {
  beginnings_.clear();
  return std::exchange(held_, {});
}

}  // namespace deepinfer
