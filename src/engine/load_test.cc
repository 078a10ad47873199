// Answers under load, on models/demo: whatever else runs, comes, leaves or is remembered.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>

#include "engine/engine.h"

namespace deepinfer {
namespace {

EngineOptions Options() {
  EngineOptions o;
  o.model = DI_SOURCE_DIR "/models/demo";
  o.max_model_len = 512;
  o.threads = 1;
  return o;
}

std::unique_ptr<Executor> Load(const EngineOptions& options) {
  ExecutorOptions o;
  o.engine = options;
  return std::make_unique<Executor>(o);
}

Request Ask(std::mt19937& random, int64_t n_prompt, int64_t max_tokens) {
  Request r;
  while (std::ssize(r.prompt) < n_prompt)
    r.prompt.push_back(static_cast<TokenId>(3 + random() % 4000));
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  r.sampling.temperature = 0;
  r.logprobs = 2;
  return r;
}

void ExpectEqual(const SequenceResult& a, const SequenceResult& b) {
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.error, b.error);
  for (const auto logprobs : {&SequenceResult::logprobs, &SequenceResult::prompt_logprobs}) {
    ASSERT_EQ((a.*logprobs).size(), (b.*logprobs).size());
    for (size_t i = 0; i < (a.*logprobs).size(); ++i) {
      EXPECT_EQ((a.*logprobs)[i].id, (b.*logprobs)[i].id) << "token " << i;
      EXPECT_EQ((a.*logprobs)[i].logprob, (b.*logprobs)[i].logprob) << "token " << i;
      EXPECT_EQ((a.*logprobs)[i].top, (b.*logprobs)[i].top) << "token " << i;
    }
  }
}

SequenceResult RunOne(Engine* engine, const Request& request) {
  const RequestId id = engine->Submit(request);
  SequenceResult result;
  while (!engine->idle()) {
    for (const Delta& delta : engine->Step()) {
      if (delta.id == id) result.Append(delta);
    }
  }
  return result;
}

void ExpectAllBlocksBack(Executor& executor) {
  EXPECT_EQ(executor.kv().free_blocks() + executor.kv().n_idle_cached(), executor.kv().n_blocks());
}

TEST(Load, TheSamePromptAgainAlsoAfterEviction) {
  std::mt19937 random(22);
  EngineOptions options = Options();
  options.num_kv_blocks = 8;  // one sequence at its longest
  const std::unique_ptr<Executor> executor = Load(options);
  Engine engine(executor.get());
  const Request request = Ask(random, 300, 30), other = Ask(random, 480, 30);
  const SequenceResult expected = RunOne(&engine, request);
  for (int i = 0; i < 2; ++i) ExpectEqual(RunOne(&engine, request), expected);
  RunOne(&engine, other);
  ExpectEqual(RunOne(&engine, request), expected);
}

TEST(Load, FiftyMixedLengthsAloneAndTogetherEnd) {
  std::mt19937 random(44);
  EngineOptions options = Options();
  options.num_kv_blocks = 24;
  options.prefill_slowdown = 2;
  const std::unique_ptr<Executor> executor = Load(options);
  Engine engine(executor.get());
  for (int round = 0; round < 4; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::map<RequestId, SequenceResult> results;
    for (int i = 0; i < 50; ++i) {
      const Request request =
          Ask(random, 1 + random() % (i % 10 == 0 ? 200 : 20), 1 + random() % 6);
      if (round % 2 == 0)
        EXPECT_TRUE(RunOne(&engine, request).finish.has_value());
      else
        results[engine.Submit(request)];
    }
    while (!engine.idle()) {
      for (const Delta& delta : engine.Step()) results[delta.id].Append(delta);
      ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    }
    for (const auto& [id, result] : results) EXPECT_TRUE(result.finish.has_value()) << id;
  }
  ExpectAllBlocksBack(*executor);
}

// Chunks follow measured times here, so every run is another schedule.
TEST(Load, OnePromptAmongOthersThatJoinLeaveAndPreempt) {
  std::mt19937 random(59);
  const Request canary = Ask(random, 70, 50);
  Request scored = Ask(random, 130, 50);
  scored.prompt_logprobs = true;
  Request sampled = Ask(random, 5, 50);
  sampled.sampling.temperature = 1;
  sampled.seed = 60;
  std::vector<SequenceResult> expected;
  {
    const std::unique_ptr<Executor> executor = Load(Options());
    for (const Request& r : {canary, sampled, scored}) {
      Engine engine(executor.get());
      expected.push_back(RunOne(&engine, r));
    }
  }
  int64_t n_preemptions = 0;
  for (const int n_others : {1, 2, 5, 12, 31}) {
    SCOPED_TRACE(testing::Message() << n_others << " others");
    EngineOptions options = Options();
    options.threads = 1 + n_others % 2;
    options.max_num_seqs = 32;
    options.max_num_batched_tokens = n_others % 2 == 0 ? 512 : 40;
    options.num_kv_blocks = 10;
    options.prefill_slowdown = n_others == 5 ? 0 : 1.5;
    const std::unique_ptr<Executor> executor = Load(options);
    Engine engine(executor.get());
    std::vector<RequestId> others;
    std::map<RequestId, SequenceResult> results;
    const auto join = [&] {
      Request other = Ask(random, 1 + random() % 150, 1 + random() % 60);
      if (random() % 2 == 0) {  // begins as the canary does
        other.prompt = canary.prompt;
        other.prompt.resize(1 + random() % 70);
        other.prompt.push_back(7);
      }
      others.push_back(engine.Submit(other));
    };
    for (int i = 0; i < n_others / 2; ++i) join();
    const RequestId ids[] = {engine.Submit(canary), engine.Submit(sampled), engine.Submit(scored)};
    const auto ended = [&](RequestId id) { return results[id].finish.has_value(); };
    while (!std::ranges::all_of(ids, ended)) {
      if (std::ssize(others) < n_others && random() % 3 == 0) join();
      if (!others.empty() && random() % 40 == 0) engine.Cancel(others[random() % others.size()]);
      for (const Delta& delta : engine.Step()) results[delta.id].Append(delta);
    }
    n_preemptions += engine.stats().n_preemptions;
    for (size_t i = 0; i < 3; ++i) ExpectEqual(results[ids[i]], expected[i]);
    for (const RequestId id : others) engine.Cancel(id);
    EXPECT_TRUE(engine.idle());
    ExpectAllBlocksBack(*executor);
  }
  EXPECT_GT(n_preemptions, 0);
}

}  // namespace
}  // namespace deepinfer
