// Published vectors and the project's mapping, each line of tests/data/fixtures/philox.
#include "sampler/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace deepinfer {
namespace {

using nlohmann::json;

std::vector<json> ReadLines(const std::string& name) {
  std::ifstream file(std::string(DI_SOURCE_DIR "/tests/data/fixtures/philox/") + name);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

uint32_t Hex(const json& text) {
  return static_cast<uint32_t>(std::stoul(text.get<std::string>(), nullptr, 16));
}

TEST(Philox, GivesThePublishedWords) {
  const auto lines = ReadLines("philox4x32.jsonl");
  ASSERT_EQ(lines.size(), 46u);
  for (const json& line : lines) {
    std::array<uint32_t, 4> counter, expected;
    for (int i = 0; i < 4; ++i) counter[i] = Hex(line["ctr"][i]), expected[i] = Hex(line["out"][i]);
    const std::array<uint32_t, 2> key{Hex(line["key"][0]), Hex(line["key"][1])};
    EXPECT_EQ(Philox4x32(counter, key, line["rounds"]), expected) << line;
  }
}

TEST(Philox, UsesTenRoundsUnlessToldOtherwise) {
  const std::array<uint32_t, 4> expected{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            expected);
}

TEST(Philox, MapsSeedPositionStreamSampleAndIndexToAUniform) {
  const auto lines = ReadLines("uniforms.jsonl");
  ASSERT_EQ(lines.size(), 60u);
  for (const json& line : lines) {
    const DrawKey key{std::stoull(line["seed"].get<std::string>()), line["sample"],
                      line["position"]};
    const uint32_t index = line["index"];
    const uint32_t word =
        RandomWords(key, static_cast<Stream>(line["stream"].get<int>()), index / 4)[index % 4];
    EXPECT_EQ(word, Hex(line["word"])) << line;
    EXPECT_EQ(UniformFromWord(word), std::stod(line["uniform"].get<std::string>())) << line;
  }
}

TEST(Philox, NoiseIsFiniteAndExactAtBothEnds) {
  // u = 2^-33: -ln(33 ln 2).  u = 1 - 2^-33: -ln(2^-33 + 2^-67 + ...) = 33 ln 2 - 2^-34.
  EXPECT_DOUBLE_EQ(GumbelFromWord(0), -std::log(33 * std::log(2.0)));
  EXPECT_DOUBLE_EQ(GumbelFromWord(0xffffffffu), 33 * std::log(2.0) - 0x1p-34);
}

}  // namespace
}  // namespace deepinfer
