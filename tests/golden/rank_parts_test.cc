// What a rank loads of a synthetic model of released widths: its part, with the values that one
// rank has.
#include <gtest/gtest.h>

#include <thread>

#include "engine/executor.h"
#include "parallel/thread_comm.h"

namespace deepinfer {
namespace {

ExecutorOptions Options() {
  ExecutorOptions o;
  o.engine.synthetic = SyntheticModel{.layers = 1, .experts = 8, .vocab = 512, .seed = 3};
  o.engine.max_model_len = 64;
  o.engine.max_num_batched_tokens = 16;
  o.engine.max_num_seqs = 1;
  o.engine.threads = 1;
  o.engine.rank_timeout_s = 120;
  o.all_logits = true;
  return o;
}

// Logits of a few tokens and of a draft behind them.
std::vector<float> LogitsOf(Executor& e) {
  std::vector<TokenId> tokens;
  for (TokenId id = 3; id < 15; ++id) tokens.push_back(id * 31 % 509);
  const SeqSlot slot = e.kv().Open();
  EXPECT_TRUE(e.kv().Reserve(slot, 32));
  const SeqRows rows{slot, tokens, 0, std::ssize(tokens)};
  const std::span<const float> step = e.Step({&rows, 1});
  std::vector<float> logits(step.begin(), step.end());
  e.kv().SetLength(slot, std::ssize(tokens));
  const DraftSeq draft{slot, 17, 0, 1, 0, Stream::kDraft};
  const std::span<const float> drafted = e.Draft({&draft, 1}).logits;
  logits.insert(logits.end(), drafted.begin(), drafted.end());
  e.kv().Close(slot);
  return logits;
}

TEST(RankParts, SyntheticModelsHaveTheBitsOfOneRank) {
  std::vector<float> want, got;
  {
    Executor alone(Options());
    want = LogitsOf(alone);
  }
  const auto comms = MakeThreadWorld(2, std::chrono::seconds(120));
  const auto options = [&](size_t rank) {
    ExecutorOptions o = Options();
    o.world = comms[rank].get();
    return o;
  };
  std::thread follower([&] { Executor(options(1)).Follow(); });
  {
    Executor driver(options(0));
    got = LogitsOf(driver);
  }
  follower.join();
  EXPECT_TRUE(got == want);
}

}  // namespace
}  // namespace deepinfer
