// Stop strings in a growing text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

// Lets text through up to the first stop string. Which one is first does not depend on how the text
// is cut: the one that is complete first, and of those that end together the longest.
class StopStrings {
 public:
  // No stop string is empty.
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next text and returns what is certain: what stands in front of a stop string, without
  // a tail that may become one. Not to be called again once matched.
  std::string Push(std::string_view text);
  // The text has ended: returns what was held back.
  std::string Flush();

  bool matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace deepinfer
