// What a step books at released sizes, without a checkpoint.
#include <gtest/gtest.h>

#include <string_view>

#include "base/arena.h"
#include "config/model_config.h"
#include "config/options.h"
#include "engine/dry_plan.h"

namespace deepinfer {
namespace {

ArenaPlan Plan(int64_t rows, int64_t context) {
  EngineOptions options;
  options.max_model_len = context;
  options.threads = 2;
  return PlanMemory(ModelConfig::Load(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json"),
                    options, rows);
}

// Index selection streams over the keys: at a context of 1,048,576 tokens and a chunk of 16,384
// rows a score for every row and key would take 64 GiB.
TEST(PlanMemory, IndexSelectionDoesNotGrowWithTheContext) {
  const ArenaPlan plan = Plan(16384, 1048576);
  const int64_t bytes = plan.BookedBytes("index.") + plan.BookedBytes("thread_scratch");
  EXPECT_GT(plan.BookedBytes("index."), int64_t{16384} * 512 * 4);  // the lists themselves
  EXPECT_LE(bytes, int64_t{256} << 20);
  EXPECT_EQ(plan.BookedBytes("index."), Plan(16384, 4096).BookedBytes("index."));
}

// A page belongs to the memory of the processor that first touches it: no two threads share one.
TEST(PlanMemory, ScratchOfAThreadFillsPagesOfItsOwn) {
  EXPECT_EQ(Plan(8, 4096).BookedBytes("thread_scratch") % (2 * kHugePageBytes), 0);
}

TEST(PlanMemory, ADecodeStepIsSmall) {
  EXPECT_LE(Plan(8, 1048576).peak_bytes(), int64_t{64} << 20);
}

// Calls of a step of 6 rows over `ranks` ranks, and the bytes of all together.
struct Calls {
  int64_t calls = 0, bytes = 0;
  bool operator==(const Calls&) const = default;
};
Calls CallsOver(int ranks, const std::vector<Exchange>& exchanges) {
  Calls all;
  for (const Exchange& e : exchanges) {
    if (e.ranks == ranks) ++all.calls, all.bytes += e.bytes;
  }
  return all;
}

TEST(PlanExchanges, ReleasedSizesOn64Ranks) {
  const ModelConfig c = ModelConfig::Load(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json");
  const Layout tp8r(c, {"tp8r", 64});
  const auto step = PlanExchanges(c, tp8r, 6);
  // A layer: columns of wo_a and wo_b among eight neighbours; 64 of the shared expert's, and slots
  // of six experts and the shared one.
  const int64_t layer = 64 * 4 + 7 * 20480, stage = 64 * 4 + 4 * 20480;
  EXPECT_EQ(CallsOver(8, step), (Calls{80, 40 * 6 * (8192 + 5120) / 8 * 4}));
  EXPECT_EQ(CallsOver(64, step), (Calls{82, 6 * (10240 + 40 * layer + 2048 * 4)}));
  const auto draft = PlanDraftExchanges(c, tp8r, 1);
  EXPECT_EQ(CallsOver(8, draft), (Calls{6, 3 * 5 * (8192 + 5120) / 8 * 4}));
  EXPECT_EQ(CallsOver(64, draft), (Calls{13, 5 * (10240 + 3 * stage + 2 * 2048 * 4)}));
  EXPECT_TRUE(PlanExchanges(c, Layout(c, {"ep", 1}), 6).empty());
}

// What a step and a draft exchange by partial sums, R rows: 43 sums of the world and one gather,
// and 15 calls more for a draft.
TEST(PlanExchanges, FastSumsOn64Ranks) {
  const ModelConfig c = ModelConfig::Load(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json");
  const int64_t rows = 6, embedding = 10240, table = 12288, sum = 20480, logits = 2048 * 4;
  const auto census = [&](const char* layout, const char* op, int ranks, const auto& exchanges) {
    Calls all;
    for (const Exchange& e : exchanges(Layout(c, {layout, 64, 0, "fast", "rows-bf16"}))) {
      if (std::string_view(e.op) == op && e.ranks == ranks) ++all.calls, all.bytes += e.bytes;
    }
    return all;
  };
  const auto step = [&](const Layout& l) { return PlanExchanges(c, l, rows); };
  const auto draft = [&](const Layout& l) { return PlanDraftExchanges(c, l, 1); };
  const Calls merges{3, rows * (embedding + 2 * table)}, gather{1, rows * logits};
  for (const char* layout : {"ep", "tp", "tp8r"}) {
    EXPECT_EQ(census(layout, "merge", 64, step), merges) << layout;
    EXPECT_EQ(census(layout, "gather", 64, step), gather) << layout;
    EXPECT_EQ(census(layout, "merge", 64, draft), (Calls{6, 5 * embedding + 5 * 512})) << layout;
    EXPECT_EQ(census(layout, "gather", 64, draft), (Calls{6, 2 * 5 * logits})) << layout;
  }
  EXPECT_EQ(census("ep", "sum", 64, step), (Calls{40, 40 * rows * sum}));
  EXPECT_EQ(census("tp", "sum", 64, step), (Calls{80, 80 * rows * sum}));
  EXPECT_EQ(census("tp8r", "sum", 64, step), (Calls{40, 40 * rows * sum}));
  EXPECT_EQ(census("tp8r", "sum", 8, step), (Calls{40, 40 * rows * sum}));
  EXPECT_EQ(census("tp8r", "sum", 64, draft), (Calls{3, 3 * 5 * sum}));
  EXPECT_EQ(census("tp8r", "sum", 8, draft), (Calls{3, 3 * 5 * sum}));
}

}  // namespace
}  // namespace deepinfer
