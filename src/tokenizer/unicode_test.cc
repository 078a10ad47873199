#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// Published properties of single code points (UnicodeData.txt, PropList.txt of Unicode 16.0).
TEST(UnicodeTest, ClassesOfKnownCharacters) {
  EXPECT_EQ(ClassOf('a'), CharClass::kLetter);
  EXPECT_EQ(ClassOf('7'), CharClass::kNumber);
  EXPECT_EQ(ClassOf('$'), CharClass::kSymbol);       // Sc
  EXPECT_EQ(ClassOf('_'), CharClass::kPunctuation);  // Pc
  EXPECT_EQ(ClassOf(0x00), CharClass::kOther);       // Cc
  EXPECT_EQ(ClassOf(0x1F), CharClass::kOther);       // Cc, not White_Space
  EXPECT_EQ(ClassOf(0x0B), CharClass::kSpace);
  EXPECT_EQ(ClassOf(0x85), CharClass::kSpace);
  EXPECT_EQ(ClassOf(0xA0), CharClass::kSpace);
  EXPECT_EQ(ClassOf(0x180E), CharClass::kOther);   // Cf since Unicode 6.3
  EXPECT_EQ(ClassOf(0x200B), CharClass::kOther);   // zero width space is Cf
  EXPECT_EQ(ClassOf(0x3000), CharClass::kSpace);   // ideographic space
  EXPECT_EQ(ClassOf(0x0301), CharClass::kMark);    // combining acute
  EXPECT_EQ(ClassOf(0x20DD), CharClass::kMark);    // Me
  EXPECT_EQ(ClassOf(0xBD), CharClass::kNumber);    // one half, No
  EXPECT_EQ(ClassOf(0x2160), CharClass::kNumber);  // roman one, Nl
  EXPECT_EQ(ClassOf(0x4E00), CharClass::kLetter);  // first and last of a range given as First, Last
  EXPECT_EQ(ClassOf(0x9FFF), CharClass::kLetter);
  EXPECT_EQ(ClassOf(0xFF5C), CharClass::kSymbol);  // full-width bar, Sm
  EXPECT_EQ(ClassOf(0x2581), CharClass::kSymbol);  // lower block, So
  EXPECT_EQ(ClassOf(0x1F600), CharClass::kSymbol);
  EXPECT_EQ(ClassOf(0x105C0), CharClass::kLetter);  // Todhri, new in 16.0
  EXPECT_EQ(ClassOf(0xE000), CharClass::kOther);    // Co
  EXPECT_EQ(ClassOf(0x10FFFF), CharClass::kOther);
}

TEST(UnicodeTest, RangesAreSortedAndDisjoint) {
  for (int i = 0; i < kCharRangeCount; ++i) {
    EXPECT_LE(kCharRanges[i].first, kCharRanges[i].last);
    if (i > 0) {
      EXPECT_GT(kCharRanges[i].first, kCharRanges[i - 1].last);
    }
  }
}

TEST(UnicodeTest, Utf8RoundTripOfEveryScalarValue) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    AppendUtf8(code, &text);
    const Utf8Step step = ReadUtf8(text, 0);
    ASSERT_EQ(step.kind, Utf8Step::kValid) << code;
    ASSERT_EQ(step.code_point, code);
    ASSERT_EQ(static_cast<size_t>(step.bytes), text.size());
  }
}

// Examples of Unicode 16.0, tables 3-8 to 3-11.
TEST(UnicodeTest, MaximalSubpartsBecomeOneReplacementEach) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

}  // namespace
}  // namespace deepinfer
