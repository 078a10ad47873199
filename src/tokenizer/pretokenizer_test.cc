#include "tokenizer/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepinfer {
namespace {

using testing::ElementsAre;

// Expected pieces follow by hand from the regular expressions in pretokenizer.h.
TEST(PreTokenizerTest, NumbersComeInThrees) {
  EXPECT_THAT(PreTokenize("1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(PreTokenize("a12b"), ElementsAre("a", "12", "b"));
  EXPECT_THAT(PreTokenize(" 1"), ElementsAre(" ", "1"));  // a space does not join a number
}

TEST(PreTokenizerTest, HanAndKanaStandAlone) {
  EXPECT_THAT(PreTokenize("ab漢字かなcd"), ElementsAre("ab", "漢字かな", "cd"));
  EXPECT_THAT(PreTokenize(" 漢"), ElementsAre(" ", "漢"));
  EXPECT_THAT(PreTokenize("한국"), ElementsAre("한국"));  // hangul is not in the set
  EXPECT_THAT(PreTokenize("か・な"),
              ElementsAre("か", "・", "な"));  // one run in split 2, cut by split 3
}

TEST(PreTokenizerTest, OptionalCharacterBeforeWords) {
  EXPECT_THAT(PreTokenize("one two"), ElementsAre("one", " two"));
  EXPECT_THAT(PreTokenize("a\tb"), ElementsAre("a", "\tb"));
  EXPECT_THAT(PreTokenize("a\nb"), ElementsAre("a", "\n", "b"));
  EXPECT_THAT(PreTokenize(std::string_view("\0\0a", 3)),
              ElementsAre(std::string_view("\0", 1), std::string_view("\0a", 2)));
  EXPECT_THAT(PreTokenize("e\u0301a"), ElementsAre("e\u0301a"));
  EXPECT_THAT(PreTokenize("\u0301"),
              ElementsAre("\u0301"));  // a lone mark gives the optional character back
}

TEST(PreTokenizerTest, PunctuationTakesAsciiLettersOrNewlines) {
  EXPECT_THAT(PreTokenize("'tis"), ElementsAre("'tis"));
  EXPECT_THAT(PreTokenize("(é"), ElementsAre("(", "é"));
  EXPECT_THAT(PreTokenize(" !!\r\n\nx"), ElementsAre(" !!\r\n\n", "x"));
  EXPECT_THAT(PreTokenize("+-*a"), ElementsAre("+-*", "a"));  // c is greedy from the first sign
}

TEST(PreTokenizerTest, WhiteSpaceRuns) {
  EXPECT_THAT(PreTokenize("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(PreTokenize("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(PreTokenize("a  \n \t b"), ElementsAre("a", "  \n", " \t", " b"));
  EXPECT_THAT(PreTokenize("  1"),
              ElementsAre("  ", "1"));  // the end of the piece counts as the end of the text
  EXPECT_THAT(PreTokenize(" \u3000x"), ElementsAre(" ", "\u3000x"));
}

TEST(PreTokenizerTest, UnmatchedCharactersStayTogether) {
  EXPECT_THAT(PreTokenize("\u200B\u200B!"), ElementsAre("\u200B\u200B", "!"));
  EXPECT_THAT(PreTokenize(""), ElementsAre());
}

}  // namespace
}  // namespace deepinfer
