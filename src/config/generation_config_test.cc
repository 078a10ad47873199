#include "config/generation_config.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace deepinfer {
namespace {

TEST(GenerationConfigTest, ReadsWhatTheFileSays) {
  const GenerationConfig c =
      GenerationConfig::Load(DI_SOURCE_DIR "/models/demo/generation_config.json");
  EXPECT_EQ(c.temperature, 0.6f);
  EXPECT_EQ(c.top_p, 0.95f);
  EXPECT_FALSE(c.top_k || c.min_p || c.repetition_penalty);

  const GenerationConfig other = GenerationConfig::Parse(
      R"({"do_sample": false, "temperature": 0.6, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1, "top_p": null})",
      "x");
  EXPECT_EQ(other.temperature, 0.f);
  EXPECT_EQ(other.top_k, 40);
  EXPECT_EQ(other.min_p, 0.1f);
  EXPECT_EQ(other.repetition_penalty, 1.1f);
  EXPECT_FALSE(other.top_p);
}

TEST(GenerationConfigTest, NoFileSaysNothing) {
  const GenerationConfig c = GenerationConfig::Load("/nowhere/generation_config.json");
  EXPECT_FALSE(c.temperature || c.top_p || c.top_k || c.min_p || c.repetition_penalty);
}

TEST(GenerationConfigTest, WrongTypesAreNamed) {
  const auto message = [](const char* text) -> std::string {
    try {
      GenerationConfig::Parse(text, "g.json");
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(R"({"temperature": "hot"})"),
            "g.json: temperature: expected a number, found \"hot\"");
  EXPECT_EQ(message(R"({"top_k": 1.5})"), "g.json: top_k: expected an integer, found 1.5");
  EXPECT_EQ(message(R"({"top_k": 4294967336})"),
            "g.json: top_k: expected an integer, found 4294967336");
  EXPECT_EQ(message(R"({"do_sample": 1})"), "g.json: do_sample: expected true or false, found 1");
  EXPECT_EQ(message("[]"), "g.json: expected a JSON object");
}

}  // namespace
}  // namespace deepinfer
