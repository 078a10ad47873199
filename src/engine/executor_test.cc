// The largest logit that the threads of a step find is the sampler's greedy token.
#include "engine/executor.h"

#include <gtest/gtest.h>

#include <algorithm>

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

// A step that leaves nothing for the draft stages has the same logits and does not touch their
// rows.
TEST(Executor, DraftRowsAreLeftWhereTheyAreWanted) {
  for (const char* isa : {"generic", "auto"}) {
    Executor executor(
        {.engine = {.model = std::string(DI_SOURCE_DIR) + "/build/testdata/checkpoints/tiny",
                    .max_model_len = 64,
                    .max_num_batched_tokens = 32,
                    .max_num_seqs = 2,
                    .threads = 2,
                    .isa = isa},
         .all_logits = true,
         .progress = {}});
    ASSERT_GT(executor.draft_tokens(), 0);
    const std::vector<TokenId> text = {5, 9, 7, 11, 13, 4, 8};
    const KvPool& kv = executor.kv();
    const auto ring_bytes = static_cast<size_t>(kv.shape().ring() * kv.shape().window_row_bytes);
    std::vector<float> logits[2];
    std::vector<uint8_t> rows[2];
    for (const size_t with : {0u, 1u}) {
      const SeqSlot slot = executor.kv().Open();
      ASSERT_TRUE(executor.kv().Reserve(slot, 64));
      const SeqRows seq[1] = {{slot, text, 0, std::ssize(text)}};
      const std::span<const float> l = executor.Step(seq, nullptr, with == 1);
      logits[with].assign(l.begin(), l.end());
      const uint8_t* ring = kv.window_rows(executor.config().num_hidden_layers) +
                            static_cast<size_t>(slot) * ring_bytes;
      rows[with].assign(ring, ring + ring_bytes);
    }
    EXPECT_EQ(logits[0], logits[1]);
    const auto is_zero = [](uint8_t b) { return b == 0; };
    EXPECT_TRUE(std::ranges::all_of(rows[0], is_zero));
    EXPECT_FALSE(std::ranges::all_of(rows[1], is_zero));
  }
}

}  // namespace
}  // namespace deepinfer
