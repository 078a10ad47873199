#include "engine/stop_strings.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace deepinfer {
namespace {

// Everything that comes out when the text is cut into pieces of the given lengths.
std::string Through(const std::vector<std::string>& stops, const std::string& text,
                    const std::vector<size_t>& cuts, bool* matched) {
  StopStrings stop(stops);
  std::string out;
  size_t at = 0;
  for (size_t length : cuts) {
    if (stop.matched()) break;
    out += stop.Push(text.substr(at, length));
    at += length;
  }
  *matched = stop.matched();
  return out + (stop.matched() ? "" : stop.Flush());
}

TEST(StopStringsTest, CutsAtTheStringAndHoldsOnlyWhatMayBecomeOne) {
  StopStrings stop({"\n\nHuman:"});
  EXPECT_EQ(stop.Push("yes.\n"), "yes.");
  EXPECT_EQ(stop.Push("no\n\nHum"), "\nno");
  EXPECT_EQ(stop.Push("ble\n"), "\n\nHumble");
  EXPECT_EQ(stop.Push("\nHuman: x"), "");
  EXPECT_TRUE(stop.matched());
}

TEST(StopStringsTest, HeldTextComesOutAtTheEnd) {
  StopStrings stop({"END"});
  EXPECT_EQ(stop.Push("the EN"), "the ");
  EXPECT_EQ(stop.Flush(), "EN");
  EXPECT_FALSE(stop.matched());
}

TEST(StopStringsTest, TheFirstToBeCompleteWins) {
  bool matched;
  EXPECT_EQ(Through({"bcd", "c"}, "abcd", {4}, &matched), "ab");
  EXPECT_EQ(Through({"c", "bc"}, "abcd", {4}, &matched), "a");
  EXPECT_EQ(Through({}, "abcd", {2, 2}, &matched), "abcd");
  EXPECT_FALSE(matched);
}

// Against a search over all ends in the whole text.
TEST(StopStringsTest, TheCutsDoNotMatter) {
  std::mt19937 random(7);
  int n_matched = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](size_t length) {
      std::string w;
      while (w.size() < length) w += static_cast<char>('a' + random() % 2);
      return w;
    };
    std::vector<std::string> stops;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(word(1 + random() % 6));
    const std::string text = word(random() % 20);
    std::string expected = text;
    bool expect_match = false;
    for (size_t end = 1; end <= text.size() && !expect_match; ++end) {
      for (const std::string& stop : stops) {
        if (!text.substr(0, end).ends_with(stop)) continue;
        expect_match = true;
        if (end - stop.size() < expected.size()) expected = text.substr(0, end - stop.size());
      }
    }
    std::vector<size_t> cuts;
    for (size_t at = 0; at < text.size(); at += cuts.back()) cuts.push_back(1 + random() % 4);
    bool matched;
    EXPECT_EQ(Through(stops, text, cuts, &matched), expected) << "round " << round;
    EXPECT_EQ(matched, expect_match) << "round " << round;
    n_matched += matched;
  }
  EXPECT_GT(n_matched, 500);
}

}  // namespace
}  // namespace deepinfer
