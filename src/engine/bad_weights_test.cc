// Bad bytes in a checkpoint fail the requests that need them, and nobody else: neither neighbours
// nor, when only a draft met them, the request that was drafted for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backend/cpu/select.h"
#include "base/cpu_features.h"
#include "engine/damaged_model.h"
#include "engine/engine.h"

namespace deepinfer {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int64_t kExperts = 16, kDraftExperts = 8;

EngineOptions Options(const std::string& dir, const std::string& speculative) {
  EngineOptions o;
  o.model = dir;
  o.max_model_len = 256;
  o.threads = 1;
  o.speculative = speculative;
  o.draft_depth = "fixed";
  return o;
}

Executor Load(const EngineOptions& engine) {
  return Executor({.engine = engine, .all_logits = false, .progress = {}});
}

using Results = std::map<RequestId, SequenceResult>;

Results RunAll(Engine* engine) {
  Results results;
  while (!engine->idle()) {
    for (const Delta& delta : engine->Step()) results[delta.id].Append(delta);
  }
  return results;
}

Request Greedy(Tokens prompt, int64_t max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  r.logprobs = 2;
  r.sampling.temperature = 0;
  return r;
}

SequenceResult RunOne(Engine* engine, const Request& request) {
  const RequestId id = engine->Submit(request);
  return RunAll(engine)[id];
}

SequenceResult RunOne(Executor* executor, const Request& request) {
  Engine engine(executor);
  return RunOne(&engine, request);
}

void ExpectEqual(const SequenceResult& a, const SequenceResult& b, const std::string& what) {
  EXPECT_EQ(a.token_ids, b.token_ids) << what;
  EXPECT_EQ(a.text, b.text) << what;
  EXPECT_EQ(a.finish, b.finish) << what;
  EXPECT_EQ(a.error, b.error) << what;
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << what;
  for (size_t i = 0; i < a.logprobs.size(); ++i)
    EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob) << what << ", token " << i;
}

const Request kGood = Greedy({0, 1166, 261, 2996}, 12);

TEST(BadWeightsTest, NanLogitsFailTheirRequestAlone) {
  constexpr TokenId kBad = 300;
  DamagedModel model;
  model.DamageToken(kBad);
  EngineOptions options = Options(model.dir(), "exact");
  // As the last token, and earlier: a NaN must survive the quantised caches too.
  for (const Tokens& prompt : {Tokens{0, 1166, 2996, kBad}, {0, kBad, 1166, 2996}}) {
    for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
      SCOPED_TRACE(isa);
      options.isa = isa;
      Executor executor = Load(options);
      Engine engine(&executor);
      const SequenceResult expected = RunOne(&engine, kGood);
      EXPECT_EQ(expected.token_ids.size(), 12u);

      const RequestId id = engine.Submit(kGood);
      const RequestId bad = engine.Submit(Greedy(prompt, 3));
      Results results = RunAll(&engine);
      EXPECT_EQ(results[bad].finish, FinishReason::kError);
      EXPECT_THAT(results[bad].error, testing::HasSubstr("logit of token 0: expected a number"));
      EXPECT_TRUE(results[bad].token_ids.empty());
      ExpectEqual(results[id], expected, "beside a request that fails");
      EXPECT_EQ(executor.kv().free_blocks() + executor.kv().n_idle_cached(),
                executor.kv().n_blocks());
    }
  }
}

// The expert of the last layer that kGood never needs.
int64_t ExpertNotNeeded() {
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    DamagedModel model;
    model.DamageExpert("layers.9", expert);
    Executor executor = Load(Options(model.dir(), "off"));
    if (RunOne(&executor, kGood).finish == FinishReason::kLength) return expert;
  }
  return -1;
}

// Tokens that need the damaged expert when they follow the prompt of kGood.
Tokens TokensThatNeedIt(Executor* plain, size_t n) {
  Tokens found;
  for (TokenId token = 100; found.size() < n && token < 1100; token += 7) {
    Tokens prompt = kGood.prompt;
    prompt.push_back(token);
    if (RunOne(plain, Greedy(prompt, 1)).finish == FinishReason::kError) found.push_back(token);
  }
  return found;
}

TEST(BadWeightsTest, ABadExpertFailsThoseWhoNeedIt) {
  const int64_t expert = ExpertNotNeeded();
  ASSERT_GE(expert, 0);
  DamagedModel model;
  model.DamageExpert("layers.9", expert);
  Executor executor = Load(Options(model.dir(), "off"));
  const SequenceResult expected = RunOne(&executor, kGood);
  const Tokens needs = TokensThatNeedIt(&executor, 3);
  ASSERT_EQ(needs.size(), 3u);
  Engine engine(&executor);
  std::vector<RequestId> good, bad;
  for (TokenId token : needs) {
    good.push_back(engine.Submit(kGood));
    bad.push_back(engine.Submit(Greedy({0, 1166, 261, 2996, token}, 3)));
  }
  Results results = RunAll(&engine);
  for (RequestId id : good) ExpectEqual(results[id], expected, "beside requests that fail");
  for (RequestId id : bad) {
    EXPECT_EQ(results[id].finish, FinishReason::kError);
    EXPECT_THAT(results[id].error, testing::HasSubstr("layers.9.ffn.experts"));
  }
  EXPECT_EQ(engine.stats().n_draft_faults, 0);
  EXPECT_EQ(executor.kv().free_blocks() + executor.kv().n_idle_cached(), executor.kv().n_blocks());
}

// Plants the right tokens, and behind `right` of them a bad one.
struct BadDrafts : PlantedDrafts {
  void Drafted(RequestId, int64_t n_tokens, std::span<TokenId> tokens, std::span<float>) override {
    for (int64_t i = 0; i < std::ssize(tokens); ++i) {
      const auto at = static_cast<size_t>(n_tokens - std::ssize(kGood.prompt) + i);
      const bool is_right = i < right && at < answer.size();
      tokens[static_cast<size_t>(i)] = is_right ? answer[at] : bad;
    }
  }
  std::optional<bool> Accepts(RequestId, int64_t, int64_t) override { return std::nullopt; }
  Tokens answer;
  TokenId bad = 0;
  int64_t right = 0;
};

// NaN in the row of a draft behind right ones: those in front of it do not notice.
TEST(BadWeightsTest, ADraftOfNanReachesNobody) {
  constexpr TokenId kBad = 300;
  DamagedModel model;
  model.DamageToken(kBad);
  for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
    SCOPED_TRACE(isa);
    EngineOptions options = Options(model.dir(), "off");
    options.isa = isa;
    Executor plain = Load(options);
    const SequenceResult expected = RunOne(&plain, kGood);
    options.speculative = "exact";
    Executor executor = Load(options);
    BadDrafts drafts;
    drafts.answer = expected.token_ids;
    drafts.bad = kBad;
    for (drafts.right = 0; drafts.right < 5; ++drafts.right) {
      Engine engine(&executor);
      engine.PlantDrafts(&drafts);
      ExpectEqual(RunOne(&engine, kGood), expected, std::to_string(drafts.right) + " right drafts");
      EXPECT_GT(engine.stats().n_drafted, engine.stats().n_accepted());
    }
  }
}

// A draft that needs a bad expert: the step goes on without drafts, here and next door.
TEST(BadWeightsTest, ADraftThatNeedsABadExpertIsGivenUp) {
  const int64_t expert = ExpertNotNeeded();
  ASSERT_GE(expert, 0);
  DamagedModel model;
  model.DamageExpert("layers.9", expert);
  Executor plain = Load(Options(model.dir(), "off"));
  const SequenceResult expected = RunOne(&plain, kGood);
  BadDrafts drafts;
  drafts.answer = expected.token_ids;
  drafts.bad = TokensThatNeedIt(&plain, 1).at(0);
  for (const char* mode : {"exact", "rejection"}) {
    Executor executor = Load(Options(model.dir(), mode));
    for (drafts.right = 0; drafts.right < 5; drafts.right += 2) {
      Engine engine(&executor);
      engine.PlantDrafts(&drafts);
      const RequestId one = engine.Submit(kGood), other = engine.Submit(kGood);
      Results results = RunAll(&engine);
      ExpectEqual(results[one], expected, mode);
      ExpectEqual(results[other], expected, mode);
      EXPECT_GT(engine.stats().n_draft_faults, 0);
      EXPECT_THAT(engine.stats().draft_fault, testing::HasSubstr("layers.9.ffn.experts"));
      EXPECT_EQ(executor.kv().free_blocks() + executor.kv().n_idle_cached(),
                executor.kv().n_blocks());
    }
  }
}

// An answer that really runs into NaN: what came before it is told, as without drafts.
TEST(BadWeightsTest, AnAnswerTellsItsTokensUpToTheOneThatFails) {
  Executor sound = Load(Options(kDemoModel, "off"));
  const Tokens answer = RunOne(&sound, kGood).token_ids;
  // A token that the answer has not had before, behind some.
  auto last = answer.begin() + 4;
  while (std::find(answer.begin(), last, *last) != last) ++last;
  DamagedModel model;
  model.DamageToken(*last);
  Executor plain = Load(Options(model.dir(), "off"));
  const SequenceResult expected = RunOne(&plain, kGood);
  ASSERT_EQ(expected.finish, FinishReason::kError);
  ASSERT_EQ(std::ssize(expected.token_ids), last - answer.begin() + 1);
  Executor executor = Load(Options(model.dir(), "exact"));
  BadDrafts drafts;
  drafts.answer = answer;
  drafts.bad = 5;
  for (drafts.right = 0; drafts.right <= 5; ++drafts.right) {
    Engine engine(&executor);
    engine.PlantDrafts(&drafts);
    ExpectEqual(RunOne(&engine, kGood), expected, std::to_string(drafts.right) + " right drafts");
  }
}

// Draft stages that are no good cost their drafts, not the answers: in all modes, at a fixed depth
// and at a chosen one.
TEST(BadWeightsTest, BadDraftStagesCostTheirDraftsOnly) {
  Executor sound = Load(Options(kDemoModel, "off"));
  Request request = kGood;
  request.max_tokens = 60;
  const SequenceResult expected = RunOne(&sound, request);
  for (const bool experts : {true, false}) {
    DamagedModel model;
    if (experts) {
      for (int64_t e = 0; e < kDraftExperts; ++e) model.DamageExpert("mtp.1", e);
    } else {
      model.Overwrite("mtp.2.confidence_head.proj.weight", 0, "");
    }
    for (const char* mode : {"exact", "rejection"}) {
      for (const char* depth : {"fixed", "auto"}) {
        SCOPED_TRACE(std::string(mode) + " " + depth);
        EngineOptions options = Options(model.dir(), mode);
        options.draft_depth = depth;
        Executor executor = Load(options);
        Engine engine(&executor);
        ExpectEqual(RunOne(&engine, request), expected, "with bad draft stages");
        const Engine::Stats stats = engine.stats();
        EXPECT_EQ(stats.n_draft_faults > 0, experts);
        if (experts) {
          EXPECT_EQ(stats.n_drafted, 0);
          EXPECT_THAT(stats.draft_fault, testing::HasSubstr("mtp.1.ffn.experts"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
