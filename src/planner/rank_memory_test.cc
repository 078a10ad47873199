#include "planner/rank_memory.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

ModelConfig Config(const std::string& path) {
  return ModelConfig::Load(DI_SOURCE_DIR "/" + path + "/config.json");
}

double Gib(const std::vector<MemoryPart>& parts, const std::string& name = "") {
  int64_t bytes = 0;
  for (const MemoryPart& p : parts) bytes += name.empty() || p.name == name ? p.bytes : 0;
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

// Spec 10 section 3: 64 ranks, attention over 8, tables on the host.
TEST(RankMemory, ReleasedPartsOn64Ranks) {
  const ModelConfig c = Config("tests/data/fixtures/config");
  const Layout l(c, {"tp8r", 64});
  const auto parts = RankMemory(c, l, 0);
  EXPECT_NEAR(Gib(parts, "routed experts"), 4.202, 0.001);
  EXPECT_NEAR(Gib(parts, "draft experts"), 0.105, 0.001);
  // 64 of 2304 inner columns, 96 of 5120 outputs, where the table has all, 1.419.
  const double shared = 1.419 / 3 * (2 * 64 / 2304.0 + 96 / 5120.0);
  EXPECT_NEAR(Gib(parts, "shared experts"), shared, 0.001);
  EXPECT_NEAR(Gib(parts, "attention"), 0.956, 0.001);
  EXPECT_NEAR(Gib(parts, "Engram projections"), 0.293, 0.001);
  EXPECT_NEAR(Gib(parts, "hyper-connections"), 0.157, 0.001);
  EXPECT_NEAR(Gib(parts, "routers"), 0.150, 0.001);
  EXPECT_NEAR(Gib(parts, "compressors"), 0.034, 0.001);
  EXPECT_NEAR(Gib(parts, "embedding"), 0.020, 0.001);
  EXPECT_NEAR(Gib(parts, "head"), 0.020, 0.001);
  EXPECT_NEAR(Gib(parts, "draft heads"), 0.075, 0.001);
  // 32 heads of the indexers on every rank, 0.042, where the table has a share of them, 0.006.
  EXPECT_NEAR(Gib(parts), 4.307 + 3.13 + 0.042 - 0.006 + shared - 1.419, 0.01);
  EXPECT_NEAR(static_cast<double>(HostMemory(c, l)) / 1e9, 202.8, 0.1);
}

TEST(RankMemory, OneRankHasEverything) {
  const ModelConfig c = Config("tests/data/fixtures/config");
  const Layout l(c, {"ep", 1});
  const double all =
      Gib(RankMemory(c, l, 0)) + static_cast<double>(HostMemory(c, l)) / (int64_t{1} << 30);
  EXPECT_NEAR(all, 285.5 + 188.8, 0.5);
}

TEST(RankMemory, ReleasedPartsOn64RanksWithTables) {
  const ModelConfig c = Config("tests/data/fixtures/config");
  const Layout bf16(c, {"tp8r", 64, 0, "exact", "rows-bf16"}),
      fp8(c, {"tp8r", 64, 0, "fast", "rows-fp8"});
  EXPECT_NEAR(Gib(RankMemory(c, bf16, 0), "Engram tables"), 2 * 2.861, 0.001);
  const auto exact = RankMemory(c, bf16, 0);
  EXPECT_NEAR(Gib(exact), 13.16 + 0.042 - 0.006 + Gib(exact, "shared experts") - 1.419, 0.01);
  const auto fast = RankMemory(c, fp8, 0);
  EXPECT_NEAR(Gib(fast, "Engram tables"), 2.95, 0.001);
  EXPECT_NEAR(Gib(fast, "shared experts"), 1.419 / 18, 0.001);  // one slice of 128 columns
  EXPECT_NEAR(Gib(fast, "attention"), 0.956, 0.001);
  EXPECT_EQ(HostMemory(c, fp8), 0);
  EXPECT_EQ(Gib(RankMemory(c, fp8, 1), "shared experts"), 0);
}

// Every byte of a cut tensor has one owner among the ranks that share it.
TEST(RankMemory, RanksOwnEveryByteOnce) {
  const ModelConfig c = Config("build/testdata/checkpoints/tiny");
  for (const char* name : {"ep", "tp", "tp8r"}) {
    for (const char* reduce : {"exact", "fast"}) {
      const Layout l(c, {name, 8, 0, reduce, "rows-fp8"});
      const int a = l.attention_size(), g = l.group_size();
      for (const TensorSpec& t : ShapeTable(c)) {
        int64_t bytes = 0;
        for (int r = 0; r < 8; ++r) bytes += OwnedBytes(t, l, r);
        // Once in the world, among those that share heads, or that share an output group.
        EXPECT_TRUE(bytes == t.bytes() || bytes == t.bytes() * 8 / a || bytes == t.bytes() * g ||
                    bytes == t.bytes() * 8)
            << t.name << " " << name << " " << reduce;
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
