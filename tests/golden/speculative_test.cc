// Drafts change nothing: answers with drafts are those without, for every depth and every sampling
// option.
//
// The seed of the random requests is gtest's: --gtest_shuffle --gtest_repeat=N gives N different
// rounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "engine_runs.h"

namespace deepinfer {
namespace {

Request RandomRequest(std::mt19937& random, const ModelConfig& config) {
  const auto one_in = [&](uint32_t n) { return random() % n == 0; };
  const auto id = [&] {
    return static_cast<TokenId>(random() % static_cast<uint32_t>(config.vocab_size));
  };
  Request r;
  for (size_t n = 1 + random() % (one_in(4) ? 90 : 12); r.prompt.size() < n;) {
    const TokenId next = id();
    if (next != config.image_token_id) r.prompt.push_back(next);
  }
  r.max_tokens = 1 + static_cast<int64_t>(random() % 24);
  r.seed = random();
  SamplingParams& s = r.sampling;
  constexpr float kTemperatures[] = {0, 0, 0.2f, 0.7f, 1, 1.9f};
  s.temperature = kTemperatures[random() % std::size(kTemperatures)];
  if (one_in(3)) s.top_k = 1 + static_cast<int>(random() % 20);
  if (one_in(3)) s.top_p = 0.3f + 0.1f * static_cast<float>(random() % 7);
  if (one_in(4)) s.min_p = 0.02f * static_cast<float>(random() % 10);
  if (one_in(4)) s.repetition_penalty = 0.8f + 0.1f * static_cast<float>(random() % 6);
  if (one_in(4)) s.frequency_penalty = -1 + 0.5f * static_cast<float>(random() % 5);
  if (one_in(4)) s.presence_penalty = -1 + 0.5f * static_cast<float>(random() % 5);
  if (one_in(4)) s.logit_bias = {{id(), 6.0f}, {id(), -20.0f}};
  if (one_in(4))
    s.min_tokens = static_cast<int>(std::min(static_cast<int64_t>(random() % 12), r.max_tokens));
  if (one_in(3)) s.stop_ids = {id(), id(), id()};
  if (one_in(5)) r.stop = {std::string(1, static_cast<char>('a' + random() % 26))};
  if (one_in(3)) r.logprobs = static_cast<int>(random() % 4);
  r.ignore_eos = one_in(2);
  s.sample = static_cast<uint32_t>(random() % 3);
  return r;
}

TEST(Exact, AnswersAreThoseWithoutDrafts) {
#ifdef DI_SANITIZED
  constexpr int kRounds = 6;
#else
  constexpr int kRounds = 60;
#endif
  EngineOptions options = DraftOptions(TestCheckpoint("tiny"));
  options.speculative = "off";
  Executor plain = Load(options);
  EXPECT_EQ(plain.draft_tokens(), 0);
  options.speculative = "exact";
  std::vector<std::unique_ptr<Executor>> drafting;
  for (int64_t depth : {1, 2, 3, 4, 5}) {
    options.num_speculative_tokens = depth;
    drafting.emplace_back(new Executor(Load(options)));
  }
  options.draft_depth = "auto";
  drafting.emplace_back(new Executor(Load(options)));

  const auto seed = static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Request> requests;
    for (size_t n = 1 + random() % 4; requests.size() < n;)
      requests.push_back(RandomRequest(random, plain.config()));
    const std::vector<SequenceResult> expected = Answers(plain, requests);
    const std::vector<SequenceResult> found =
        Answers(*drafting[static_cast<size_t>(round) % drafting.size()], requests);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ExpectSame(found[i], expected[i],
                 "seed " + std::to_string(seed) + ", round " + std::to_string(round) +
                     ", request " + std::to_string(i));
    }
  }
}

TEST(Rejection, GreedyAnswersAreThoseWithoutDrafts) {
  EngineOptions options = DraftOptions(TestCheckpoint("tiny"));
  options.speculative = "off";
  Executor plain = Load(options);
  options.speculative = "rejection";
  Executor drafting = Load(options);
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    Request request = RandomRequest(random, plain.config());
    request.sampling.temperature = 0;
    ExpectSame(Answers(drafting, {request})[0], Answers(plain, {request})[0],
               "round " + std::to_string(round));
  }
}

// Draws of the first two tokens of one prompt, by sequences that differ in their seed, with and
// without drafts: counts of the most frequent pairs agree.
TEST(Rejection, SampledAnswersAreDistributedAsWithoutDrafts) {
#ifdef DI_SANITIZED
  constexpr uint64_t kDraws = 200;
#else
  constexpr uint64_t kDraws = 3000;
#endif
  std::map<Tokens, double> counts[2];
  for (int mode = 0; mode < 2; ++mode) {
    EngineOptions options = DraftOptions(TestCheckpoint("tiny"));
    options.max_num_seqs = 16;
    options.max_num_batched_tokens = 128;
    options.speculative = mode == 0 ? "off" : "rejection";
    Executor executor = Load(options);
    Engine engine(&executor);
    std::map<RequestId, Tokens> answers;
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      Request r;
      r.prompt = {7, 300, 41};
      r.max_tokens = 3;
      r.ignore_eos = true;
      r.seed = seed + 1000000 * static_cast<uint64_t>(mode);
      r.sampling.temperature = 0.7f;
      r.sampling.top_p = 0.9f;
      engine.Submit(r);
    }
    while (!engine.idle()) {
      for (const Delta& d : engine.Step()) {
        Tokens& answer = answers[d.id];
        answer.insert(answer.end(), d.token_ids.begin(), d.token_ids.end());
      }
    }
    for (const auto& [id, answer] : answers) ++counts[mode][{answer[1], answer[2]}];
  }
  // Two-sample chi-square over pairs seen at least 20 times together.
  double chi_square = 0, degrees = 0;
  for (const auto& [pair, n] : counts[0]) {
    const double a = n, b = counts[1][pair];
    if (a + b < 20) continue;
    chi_square += (a - b) * (a - b) / (a + b);
    ++degrees;
  }
  EXPECT_GT(degrees, kDraws >= 1000 ? 3 : 1);
  // Far above the mean in units of the standard deviation: about the 1e-5 quantile.
  EXPECT_LT(chi_square, degrees + 4.5 * std::sqrt(2 * degrees) + 6) << degrees << " pairs";
}

}  // namespace
}  // namespace deepinfer
