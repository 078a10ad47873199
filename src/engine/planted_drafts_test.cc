// Forced verdicts: what the engine emits and keeps under them, on the checkpoint tiny.
#include "engine/planted_drafts.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/engine.h"

namespace deepinfer {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int64_t kDepth = 3;

std::unique_ptr<Executor> Load(const char* speculative) {
  ExecutorOptions o;
  o.engine.model = DI_SOURCE_DIR "/build/testdata/checkpoints/tiny";
  o.engine.max_model_len = 128;
  o.engine.threads = 1;
  o.engine.speculative = speculative;
  o.engine.draft_depth = "fixed";
  o.engine.num_speculative_tokens = kDepth;
  return std::make_unique<Executor>(o);
}

Request Greedy(Tokens prompt, int64_t max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  r.sampling.temperature = 0;
  return r;
}

// Plants `drafts` in every block and accepts the first `accepted` of them.
struct Forced : PlantedDrafts {
  void Drafted(RequestId, int64_t n_tokens, std::span<TokenId> tokens,
               std::span<float> confidence) override {
    EXPECT_EQ(tokens.size(), confidence.size());
    std::copy(drafts.begin(), drafts.end(), tokens.begin());
    lengths.push_back(n_tokens);
  }
  std::optional<bool> Accepts(RequestId, int64_t n_tokens, int64_t slot) override {
    EXPECT_EQ(n_tokens, lengths.back());
    if (!forces) return std::nullopt;
    return slot < accepted;
  }
  Tokens drafts;
  int64_t accepted = 0;
  bool forces = true;
  std::vector<int64_t> lengths;
};

Tokens Answer(Engine* engine, Request request) {
  Tokens tokens;
  engine->Submit(std::move(request));
  while (!engine->idle()) {
    for (const Delta& d : engine->Step())
      tokens.insert(tokens.end(), d.token_ids.begin(), d.token_ids.end());
  }
  return tokens;
}

// What follows `tokens` when they are a prompt.
TokenId Next(Executor* plain, Tokens tokens) {
  Engine engine(plain);
  return Answer(&engine, Greedy(std::move(tokens), 1))[0];
}

class PlantedDraftsTest : public testing::TestWithParam<const char*> {};

// Accepted drafts go into the answer whatever they are; every other token is the model's behind
// all that precedes it.
TEST_P(PlantedDraftsTest, VerdictsAreObeyed) {
  const std::unique_ptr<Executor> executor = Load(GetParam()), plain = Load("off");
  for (int64_t accepted = 0; accepted <= kDepth; ++accepted) {
    Forced forced;
    forced.drafts = {11, 12, 13};
    forced.accepted = accepted;
    Engine engine(executor.get());
    engine.PlantDrafts(&forced);
    const Tokens answer = Answer(&engine, Greedy({5, 6, 7}, 14));
    ASSERT_EQ(answer.size(), size_t{14});
    Tokens known{5, 6, 7, answer[0]};
    EXPECT_EQ(answer[0], Next(plain.get(), {5, 6, 7}));
    while (std::ssize(known) - 3 < 14 - kDepth) {
      known.insert(known.end(), forced.drafts.begin(), forced.drafts.begin() + accepted);
      known.push_back(Next(plain.get(), known));
    }
    EXPECT_EQ(Tokens(answer.begin(), answer.begin() + std::ssize(known) - 3),
              Tokens(known.begin() + 3, known.end()))
        << accepted << " accepted";
  }
}

// Planted drafts that are what the model says are accepted by the verification itself.
TEST_P(PlantedDraftsTest, DraftsMayBePlantedAndVerified) {
  const std::unique_ptr<Executor> executor = Load(GetParam()), plain = Load("off");
  Engine undrafted(plain.get());
  const Tokens expected = Answer(&undrafted, Greedy({5, 6, 7}, 1 + 2 * (kDepth + 1)));
  struct Right : Forced {
    void Drafted(RequestId id, int64_t n_tokens, std::span<TokenId> tokens,
                 std::span<float> confidence) override {
      const auto begin = answer.begin() + n_tokens - 3;
      drafts.assign(begin, begin + std::min<int64_t>(kDepth, answer.end() - begin));
      Forced::Drafted(id, n_tokens, tokens, confidence);
    }
    Tokens answer;
  } right;
  right.answer = expected;
  right.forces = false;
  Engine engine(executor.get());
  engine.PlantDrafts(&right);
  EXPECT_EQ(Answer(&engine, Greedy({5, 6, 7}, std::ssize(expected))), expected);
  EXPECT_EQ(engine.stats().n_verifications, 2);
  EXPECT_EQ(engine.stats().n_accepted(), 2 * kDepth);
}

INSTANTIATE_TEST_SUITE_P(Modes, PlantedDraftsTest, testing::Values("exact", "rejection"));

}  // namespace
}  // namespace deepinfer
