#include "tokenizer/token_classes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

namespace deepinfer {
namespace {

using nlohmann::json;

const std::string kEngram = DI_SOURCE_DIR "/tests/data/fixtures/engram/";

std::vector<int32_t> StoredMap() {
  std::FILE* pipe = popen(("gzip -dc '" + kEngram + "token_map.u32le.gz'").c_str(), "r");
  std::vector<int32_t> map(1 << 20);
  map.resize(std::fread(map.data(), sizeof(int32_t), map.size(), pipe));
  pclose(pipe);
  return map;
}

uint32_t Crc32(const void* data, size_t bytes) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<const uint8_t*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

TEST(TokenClassesTest, ReleasedMapEqualsTheStoredOne) {
  const Tokenizer tokenizer = Tokenizer::Load(DI_SOURCE_DIR "/build/testdata/tokenizer_v41.json");
  const std::vector<int32_t> classes = TokenClasses(tokenizer);
  EXPECT_EQ(classes, StoredMap());
  EXPECT_EQ(NumTokenClasses(classes), 99092);
  EXPECT_EQ(classes[2], 2);
  EXPECT_EQ(Crc32(classes.data(), classes.size() * sizeof(int32_t)), 0x8603B89Du);
  EXPECT_EQ(std::accumulate(classes.begin(), classes.end(), int64_t{0}), 5395231328);
}

TEST(TokenClassesTest, CountsOfOtherCheckpoints) {
  for (const char* dir :
       {"models/demo", "build/testdata/checkpoints/tiny", "build/testdata/checkpoints/tiny-odd",
        "build/testdata/checkpoints/tiny-window"}) {
    const std::string path = std::string(DI_SOURCE_DIR "/") + dir;
    std::ifstream config(path + "/config.json");
    ASSERT_TRUE(config.good()) << path << " is missing: run scripts/test.sh once";
    const Tokenizer tokenizer = Tokenizer::Load(path + "/tokenizer.json");
    const int32_t expected = json::parse(config)["text_config"]["engram_compressed_vocab_size"];
    EXPECT_EQ(NumTokenClasses(TokenClasses(tokenizer)), expected) << dir;
  }
}

// Keys of the reference for single tokens.
TEST(TokenClassesTest, SampleKeys) {
  std::ifstream in(kEngram + "token_map_summary.json");
  const json summary = json::parse(in);
  int n = 0;
  for (const json& sample : summary["samples"]) {
    const std::string text = sample["text"], key = sample["key"];
    if (text.find("\uFFFD") != std::string::npos) continue;  // keyed by the raw spelling
    const std::string normal = NormalizeForClass(text);
    EXPECT_EQ(normal.empty() ? text : normal, key) << sample["token"];
    ++n;
  }
  EXPECT_GT(n, 50);
}

TEST(TokenClassesTest, NormalForm) {
  EXPECT_EQ(NormalizeForClass("  \u00C9cole \t\n X "), "ecole x");
  EXPECT_EQ(NormalizeForClass("\u0130"), "i");  // NFD takes the dot off before lower case is taken
  EXPECT_EQ(NormalizeForClass("\u03A3"), "\u03C3");   // no final-sigma rule
  EXPECT_EQ(NormalizeForClass("\uFF21\u20DD"), "a");  // compatibility form; enclosing marks go too
  EXPECT_EQ(NormalizeForClass("\u3000\u0085"), "");   // U+3000 becomes a space, U+0085 is stripped
  EXPECT_EQ(NormalizeForClass("\n \t"), " ");
  EXPECT_EQ(NormalizeForClass(std::string_view("a\0B", 3)), std::string_view("a\0b", 3));
}

}  // namespace
}  // namespace deepinfer
