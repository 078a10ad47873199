// Answers under load, on models/demo: whatever else runs, comes, leaves or is remembered.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
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

// Few requests again and again, which begin alike, are scored, leave and are put back: whatever is
// remembered of them, each gives the answer that it gave at first.
TEST(Load, TheSameRequestsAgainAndAgain) {
  constexpr int kSteps = 1000;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  EngineOptions options = Options();
  options.max_model_len = 1024;
  options.num_kv_blocks = 18;
  options.prefix_cache_mib = 8;
  options.prefill_slowdown = 2;
  const std::unique_ptr<Executor> executor = Load(options);
  std::vector<Request> requests;
  const Request beginning = Ask(random, 120, 1);
  for (int i = 0; i < 30; ++i) {
    Request r = Ask(random, 1 + random() % 250, 1 + random() % 200);
    if (i % 3 == 0)
      r.prompt.insert(r.prompt.begin(), beginning.prompt.begin(), beginning.prompt.end());
    r.prompt_logprobs = i % 8 == 0;
    r.prompt_only = i % 16 == 0;
    if (i % 2 == 0) r.sampling.temperature = 1;
    r.seed = static_cast<uint64_t>(i);
    requests.push_back(r);
  }
  Engine engine(executor.get());
  std::map<RequestId, std::pair<size_t, SequenceResult>> running;
  std::vector<std::optional<SequenceResult>> first(requests.size());
  int n_again = 0;
  for (int n_steps = 0; n_steps < kSteps && !testing::Test::HasFailure(); ++n_steps) {
    while (running.size() < 14) {
      const size_t i = random() % requests.size();
      running[engine.Submit(requests[i])] = {i, {}};
    }
    if (random() % 20 == 0) {
      const auto one = std::next(running.begin(), static_cast<int>(random() % running.size()));
      engine.Cancel(one->first);
      running.erase(one);
    }
    for (const Delta& delta : engine.Step()) {
      auto& [i, result] = running.at(delta.id);
      result.Append(delta);
      if (!result.finish) continue;
      SCOPED_TRACE(testing::Message() << "request " << i);
      if (first[i]) ExpectEqual(result, *first[i]);
      n_again += first[i].has_value();
      if (!first[i]) first[i] = std::move(result);
      running.erase(delta.id);
    }
  }
  EXPECT_GT(n_again, 0);
  EXPECT_GT(engine.stats().n_preemptions, 0);
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
