#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace deepinfer {
namespace {

// Length of the longest end of `text` that is the begin, but not the whole, of `stop`.
size_t OpenPrefix(std::string_view text, std::string_view stop) {
  size_t n = std::min(text.size(), stop.size() - 1);
  while (n > 0 && text.substr(text.size() - n) != stop.substr(0, n)) --n;
  return n;
}

}  // namespace

std::string StopStrings::Push(std::string_view text) {
  held_ += text;
  size_t first_end = std::string::npos, begin = 0, open = 0;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    open = std::max(open, OpenPrefix(held_, stop));
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < begin)) first_end = end, begin = at;
  }
  matched_ = first_end != std::string::npos;
  std::string certain = held_.substr(0, matched_ ? begin : held_.size() - open);
  held_.erase(0, matched_ ? held_.size() : certain.size());
  return certain;
}

std::string StopStrings::Flush() { return std::exchange(held_, {}); }

}  // namespace deepinfer
