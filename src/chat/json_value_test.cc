#include "chat/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace deepinfer {
namespace {

std::string RoundTrip(const std::string& text) { return DumpJson(ParseJson(text, "test")); }

// Expected texts are what CPython 3.11 prints: json.dumps(json.loads(text), ensure_ascii=False).
TEST(JsonValueTest, PrintsAsPython) {
  EXPECT_EQ(RoundTrip(R"({"b":1,"a":[true,false,null,{}],"c":[]})"),
            R"({"b": 1, "a": [true, false, null, {}], "c": []})");
  EXPECT_EQ(RoundTrip(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
  EXPECT_EQ(RoundTrip(R"("\u00e9\u4fdd \/ \ud83d\ude00")"), "\"é保 / 😀\"");
  EXPECT_EQ(RoundTrip(R"("\n\r\t\b\f\"\\\u0000\u001f\u007f")"),
            "\"\\n\\r\\t\\b\\f\\\"\\\\\\u0000\\u001f\x7F\"");
}

TEST(JsonValueTest, NumbersPrintAsPython) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "0"},
      {"-0", "0"},
      {"-7", "-7"},
      {"12345678901234567890", "12345678901234567890"},
      {"-123456789012345678901234567890", "-123456789012345678901234567890"},
      {"1.0", "1.0"},
      {"-0.0", "-0.0"},
      {"1e2", "100.0"},
      {"1.50", "1.5"},
      {"0.1", "0.1"},
      {"1e-7", "1e-07"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"123456789012345.6", "123456789012345.6"},
      {"1e15", "1000000000000000.0"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"1e16", "1e+16"},
      {"1E22", "1e+22"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"5e-324", "5e-324"},
      {"2.5e-10", "2.5e-10"},
      {"0.30000000000000004", "0.30000000000000004"},
      {"1e-400", "0.0"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(RoundTrip(text), expected);
}

TEST(JsonValueTest, FindSkipsNullAndAsIntegerRefusesFloats) {
  const JsonValue v =
      ParseJson(R"({"a":null,"b":7,"c":7.0,"d":99999999999999999999,"e":true})", "test");
  EXPECT_EQ(v.Find("a"), nullptr);
  EXPECT_EQ(v.Find("z"), nullptr);
  EXPECT_EQ(v.Find("b")->AsInteger(), 7);
  EXPECT_EQ(v.Find("c")->AsInteger(), std::nullopt);
  EXPECT_EQ(v.Find("d")->AsInteger(), std::nullopt);
  EXPECT_EQ(v.Find("e")->AsInteger(), std::nullopt);
}

TEST(JsonValueTest, MalformedTextIsRefused) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\\ud800\"", "\"\xFF\"",
                           "1e400", "NaN", "'a'"}) {
    EXPECT_FALSE(TryParseJson(text).has_value()) << text;
    EXPECT_THROW(ParseJson(text, "test"), Error) << text;
  }
  EXPECT_TRUE(TryParseJson(std::string(200, '[') + std::string(200, ']')).has_value());
  EXPECT_FALSE(TryParseJson(std::string(201, '[') + std::string(201, ']')).has_value());
  EXPECT_FALSE(TryParseJson(std::string(1'000'000, '[')).has_value());
}

}  // namespace
}  // namespace deepinfer
