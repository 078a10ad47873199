// What a step books at released sizes, without a checkpoint.
#include <gtest/gtest.h>

#include "base/arena.h"
#include "config/model_config.h"
#include "config/options.h"
#include "engine/executor.h"

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

}  // namespace
}  // namespace deepinfer
