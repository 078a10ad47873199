// The largest logit that the threads of a step find is the sampler's greedy token.
#include "engine/executor.h"

#include <gtest/gtest.h>

#include "sampler/sampling.h"

namespace deepinfer {
namespace {

TEST(Executor, LargestLogitsAreTheSamplersGreedyTokens) {
  SamplingWorkspace workspace;
  for (const char* numerics : {"release", "fp32"}) {
    for (int threads : {1, 2, 3}) {
      Executor executor(
          {.engine = {.model = std::string(DI_SOURCE_DIR) + "/build/testdata/checkpoints/tiny-odd",
                      .max_model_len = 64,
                      .max_num_batched_tokens = 32,
                      .max_num_seqs = 2,
                      .threads = threads,
                      .numerics = numerics},
           .all_logits = true,
           .progress = {}});
      std::vector<TokenId> text;
      for (int i = 0; i < 64; ++i) text.push_back((i * 37 + 5) % 500);
      const SeqSlot slot = executor.kv().Open();
      ASSERT_TRUE(executor.kv().Reserve(slot, 64));
      const auto vocab = static_cast<size_t>(executor.config().vocab_size);
      for (const int64_t end : {17, 18, 20, 52}) {  // chunks of 17, 1, 2 and 32 rows
        const int64_t first = executor.kv().length(slot), n = end - first;
        const SeqRows rows[1] = {{slot, std::span(text).first(static_cast<size_t>(end)), first, n}};
        const std::span<const float> logits = executor.Step(rows);
        ASSERT_EQ(logits.size(), static_cast<size_t>(n) * vocab);
        for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
          const std::span<const float> row = logits.subspan(r * vocab, vocab);
          EXPECT_EQ(executor.LargestLogit(row), Sample(row, {.temperature = 0}, {}, 0, workspace));
        }
        executor.kv().SetLength(slot, end);
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
