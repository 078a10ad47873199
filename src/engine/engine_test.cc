// The engine on models/demo (a small trained model) and on the checkpoint tiny (random weights).
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"

namespace deepinfer {
namespace {

using nlohmann::json;
using Results = std::map<RequestId, SequenceResult>;

constexpr const char* kDemo = DI_SOURCE_DIR "/models/demo";
constexpr const char* kTiny = DI_SOURCE_DIR "/build/testdata/checkpoints/tiny";

EngineOptions DemoOptions() {
  EngineOptions o;
  o.model = kDemo;
  o.max_model_len = 512;
  o.threads = 1;
  return o;
}

ExecutorOptions Loaded(const EngineOptions& engine) {
  ExecutorOptions o;
  o.engine = engine;
  return o;
}

Results RunAll(Engine* engine) {
  Results results;
  while (!engine->idle()) {
    for (const Delta& delta : engine->Step()) results[delta.id].Append(delta);
  }
  return results;
}

SequenceResult RunOne(Engine* engine, Request request) {
  const RequestId id = engine->Submit(std::move(request));
  return RunAll(engine)[id];
}

Request Greedy(std::vector<TokenId> prompt, int64_t max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

void ExpectEqual(const SequenceResult& a, const SequenceResult& b, const std::string& what) {
  EXPECT_EQ(a.token_ids, b.token_ids) << what;
  EXPECT_EQ(a.text, b.text) << what;
  EXPECT_EQ(a.finish, b.finish) << what;
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << what;
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob) << what << " token " << i;
    EXPECT_EQ(a.logprobs[i].rank, b.logprobs[i].rank) << what << " token " << i;
    EXPECT_EQ(a.logprobs[i].top, b.logprobs[i].top) << what << " token " << i;
  }
}

// One model, loaded once for the tests that need nothing special.
class DemoEngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { executor_ = new Executor(Loaded(DemoOptions())); }
  static void TearDownTestSuite() { delete executor_; }
  static std::vector<TokenId> Ids(std::string_view text) {
    return executor_->tokenizer().Encode("<｜begin▁of▁sentence｜>" + std::string(text));
  }
  static Executor* executor_;
  Engine engine_{executor_};
};
Executor* DemoEngineTest::executor_ = nullptr;

// High acceptance is no gain when a step takes longer for it: seconds decide, not tokens (B67).
TEST(EngineStats, GainBelowOneIsTold) {
  Engine::Stats stats{};
  EXPECT_EQ(stats.gain(), std::nullopt);
  stats.plain = {.n = 10, .tokens = 10, .seconds = 1};
  EXPECT_EQ(stats.gain(), std::nullopt) << "nothing to compare with";
  stats.drafted = {.n = 10, .tokens = 40, .seconds = 4};
  stats.drafts_s = 1;
  EXPECT_DOUBLE_EQ(stats.gain().value(), 0.8);
  EXPECT_DOUBLE_EQ(stats.drafted.StepSeconds().value(), 0.4);
}

// examples.json holds greedy answers of an independent reference of the model. Roundings to 8 and 4
// bits turn a last-bit difference of a sum into one step of an activation, so logits of two correct
// programs differ by some tenths here; answers whose best two logits are everywhere further apart
// than kGap must be the same, the others agree at least at the first token.
TEST_F(DemoEngineTest, AnswersOfTheExamples) {
  constexpr double kGap = 0.3;
  std::ifstream file(std::string(kDemo) + "/examples.json");
  int n_compared = 0;
  for (const json& example : json::parse(file)) {
    const auto expected = example["greedy_ids"].get<std::vector<TokenId>>();
    const SequenceResult result =
        RunOne(&engine_, Greedy(example["prompt_ids"], std::ssize(expected)));
    EXPECT_EQ(result.token_ids[0], expected[0]) << example["name"];
    if (example["smallest_logit_gap"] < kGap) continue;
    ++n_compared;
    EXPECT_EQ(result.token_ids, expected) << example["name"];
    EXPECT_EQ(result.finish, expected.back() == 1 ? FinishReason::kStop : FinishReason::kLength);
    const std::string text = example["greedy_text"];
    EXPECT_EQ(result.text, text.substr(0, text.find("<｜end▁of▁sentence｜>"))) << example["name"];
  }
  EXPECT_GE(n_compared, 14);
}

TEST_F(DemoEngineTest, StopTokensEndTheAnswerAndIgnoreEosDoesNot) {
  const std::vector<TokenId> prompt = executor_->tokenizer().Encode(
      "<｜begin▁of▁sentence｜><｜User｜>What is the capital of France?<｜Assistant｜></think>");
  const SequenceResult stopped = RunOne(&engine_, Greedy(prompt, 40));
  EXPECT_EQ(stopped.text, "The capital of France is Paris.");
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.token_ids.back(), executor_->config().eos_token_id);

  Request request = Greedy(prompt, 40);
  request.ignore_eos = true;
  const SequenceResult all = RunOne(&engine_, request);
  EXPECT_EQ(all.token_ids.size(), 40u);
  EXPECT_EQ(all.finish, FinishReason::kLength);
  EXPECT_THAT(all.text, testing::StartsWith("The capital of France is Paris."));

  request = Greedy(prompt, 40);
  request.sampling.stop_ids = {stopped.token_ids[2]};
  const SequenceResult own = RunOne(&engine_, request);
  EXPECT_EQ(own.token_ids.size(), 3u);
  EXPECT_EQ(own.text, "The capital");
}

// A bias forces role tokens to be drawn.
TEST_F(DemoEngineTest, UserAndBeginTokensAreStops) {
  for (const char* name : {"<｜User｜>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"}) {
    Request request = Greedy(Ids("In the beginning"), 5);
    const TokenId id = *executor_->tokenizer().IdOf(name);
    request.sampling.logit_bias = {{id, 100.f}};
    const SequenceResult result = RunOne(&engine_, request);
    EXPECT_EQ(result.token_ids, std::vector<TokenId>{id}) << name;
    EXPECT_EQ(result.text, "") << name;
    EXPECT_EQ(result.finish, FinishReason::kStop) << name;
  }
}

// Every substring of the answer, most of them across token borders, some inside one token.
TEST_F(DemoEngineTest, StopStringsCutTheTextWhereverTokensEnd) {
  const SequenceResult whole = RunOne(&engine_, Greedy(Ids("In the beginning"), 24));
  for (size_t at = 0; at + 12 < whole.text.size(); at += 13) {
    const std::string stop = whole.text.substr(at, 3 + at % 9);
    Request request = Greedy(Ids("In the beginning"), 24);
    request.stop = {"never there", stop};
    const RequestId id = engine_.Submit(request);
    SequenceResult result;
    while (!engine_.idle()) {
      for (const Delta& delta : engine_.Step()) {
        EXPECT_EQ(delta.id, id);
        result.Append(delta);
        EXPECT_TRUE(whole.text.starts_with(result.text));
      }
    }
    EXPECT_EQ(result.text, whole.text.substr(0, whole.text.find(stop))) << stop;
    EXPECT_EQ(result.finish, FinishReason::kStop) << stop;
    // Exactly the tokens up to the one that completes the stop string.
    const auto n = static_cast<ptrdiff_t>(result.token_ids.size());
    const std::span<const TokenId> ids(whole.token_ids);
    EXPECT_TRUE(std::ranges::equal(result.token_ids, ids.first(static_cast<size_t>(n))));
    const Tokenizer& t = executor_->tokenizer();
    EXPECT_NE(t.Decode(result.token_ids, true).find(stop), std::string::npos);
    result.token_ids.pop_back();
    EXPECT_EQ(t.Decode(result.token_ids, true).find(stop), std::string::npos);
  }
}

TEST_F(DemoEngineTest, SequencesFillMaxModelLenAndNoMore) {
  std::vector<TokenId> prompt = Ids("In the beginning");
  while (prompt.size() < 511) prompt.push_back(prompt[1 + prompt.size() % 3]);
  SequenceResult result = RunOne(&engine_, Greedy(prompt, 0));  // 511: room for one
  EXPECT_EQ(result.token_ids.size(), 1u);
  EXPECT_EQ(result.finish, FinishReason::kLength);

  prompt.resize(505);
  Request request = Greedy(prompt, 0);
  request.ignore_eos = true;
  EXPECT_EQ(RunOne(&engine_, request).token_ids.size(), 7u);
  request.max_tokens = 100;
  EXPECT_EQ(RunOne(&engine_, request).token_ids.size(), 7u);
  request.max_tokens = 6;
  EXPECT_EQ(RunOne(&engine_, request).token_ids.size(), 6u);
}

TEST_F(DemoEngineTest, BadRequestsAreRefusedInOneSentence) {
  const auto refusal = [&](const std::function<void(Request&)>& change) -> std::string {
    Request request = Greedy({0, 5}, 4);
    change(request);
    try {
      engine_.Submit(request);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal([](Request& r) { r.prompt.clear(); }),
            "prompt: expected at least one token, found none");
  EXPECT_EQ(refusal([](Request& r) { r.prompt.assign(512, 5); }),
            "prompt: expected at most 511 tokens, so that one more fits --max-model-len 512, found "
            "512");
  EXPECT_EQ(refusal([](Request& r) {
              r.prompt = {0, 4096};
            }),
            "prompt: expected token ids 0 to 4095, found 4096 at position 1");
  EXPECT_EQ(refusal([](Request& r) {
              r.prompt = {-1, 3};
            }),
            "prompt: expected token ids 0 to 4095, found -1 at position 0");
  EXPECT_EQ(refusal([](Request& r) {
              r.prompt = {0, 7, 4095};
            }),
            "prompt: images are not supported, found their token 4095 at position 2");
  EXPECT_EQ(refusal([](Request& r) { r.max_tokens = -1; }),
            "max_tokens: expected 0 or more, found -1");
  EXPECT_EQ(refusal([](Request& r) { r.logprobs = 21; }), "logprobs: expected 0 to 20, found 21");
  EXPECT_THAT(refusal([](Request& r) { r.prompt_logprobs = true; }),
              testing::StartsWith("prompt_logprobs: expected logprobs"));
  EXPECT_EQ(refusal([](Request& r) {
              r.stop = {"a", ""};
            }),
            "stop: expected texts, found an empty one");
  EXPECT_THAT(refusal([](Request& r) { r.sampling.top_p = 0; }), testing::HasSubstr("top_p"));
  EXPECT_TRUE(engine_.idle());
  EXPECT_EQ(executor_->kv().free_blocks(), executor_->kv().n_blocks());
}

TEST_F(DemoEngineTest, ASeedFixesTheTextAndNoSeedDoesNot) {
  Request request = Greedy(Ids("And the king said"), 30);
  request.sampling.temperature = 1;
  request.seed = 5;
  const SequenceResult five = RunOne(&engine_, request);
  ExpectEqual(RunOne(&engine_, request), five, "same seed");
  request.seed = 6;
  EXPECT_NE(RunOne(&engine_, request).token_ids, five.token_ids);
  request.seed.reset();
  EXPECT_NE(RunOne(&engine_, request).token_ids, RunOne(&engine_, request).token_ids);
  request.seed = 5;
  request.sampling.sample = 1;
  EXPECT_NE(RunOne(&engine_, request).token_ids, five.token_ids);
}

// One token at a time gives the text of the whole, characters of several bytes included.
TEST_F(DemoEngineTest, DeltasNeverSplitACharacter) {
  Request request = Greedy(Ids("é"), 40);
  request.sampling.temperature = 2;  // many byte tokens
  request.seed = 3;
  request.ignore_eos = true;
  const RequestId id = engine_.Submit(request);
  SequenceResult result;
  while (!engine_.idle()) {
    for (const Delta& delta : engine_.Step()) {
      EXPECT_EQ(delta.id, id);
      EXPECT_GE(delta.token_ids.size(), 1u);
      EXPECT_NO_THROW(json(delta.text).dump());  // throws for text that is not UTF-8
      result.Append(delta);
    }
  }
  EXPECT_EQ(result.text, executor_->tokenizer().Decode(result.token_ids, true));
}

TEST_F(DemoEngineTest, CancelAtAnyPointFreesEverything) {
  std::vector<TokenId> prompt = Ids("In the beginning");
  while (prompt.size() < 480) prompt.push_back(prompt[1 + prompt.size() % 3]);
  EngineOptions options = DemoOptions();
  options.max_num_batched_tokens = 64;
  Executor executor(Loaded(options));
  Engine engine(&executor);
  const Request next = Greedy(Ids("And the king said"), 12);
  const SequenceResult expected = RunOne(&engine, next);
  for (int n_steps = 0; n_steps < 12; n_steps += 1 + n_steps / 2) {
    const RequestId id = engine.Submit(Greedy(prompt, 20));
    for (int i = 0; i < n_steps; ++i) engine.Step();
    engine.Cancel(id);
    EXPECT_TRUE(engine.idle());
    EXPECT_TRUE(engine.Step().empty());
    EXPECT_EQ(executor.kv().free_blocks() + executor.kv().n_idle_cached(),
              executor.kv().n_blocks());
    ExpectEqual(RunOne(&engine, next), expected, "after a cancelled request");
  }
}

// The prompt and the next turn, each again, alone and while the first runs: the same answers from
// fewer rows.
TEST_F(DemoEngineTest, SharedPrefixesGiveTheSameAnswerFromFewerRows) {
  std::string text;
  for (int i = 0; i < 15; ++i) text += "And the evening and the morning were the day. ";
  Request first = Greedy(Ids(text), 100);
  first.sampling.temperature = 1;
  first.seed = 5;
  first.logprobs = 2;
  first.ignore_eos = true;
  EngineOptions options = DemoOptions();
  options.prefix_cache_mib = 0;
  Executor other_executor(Loaded(options));
  Engine plain(&other_executor);
  const SequenceResult answer = RunOne(&plain, first);
  Request next = first;
  next.prompt.insert(next.prompt.end(), answer.token_ids.begin(), answer.token_ids.end());
  for (const TokenId id : executor_->tokenizer().Encode(" And God said,"))
    next.prompt.push_back(id);
  const SequenceResult expected = RunOne(&plain, next);

  const int64_t n_prompt = std::ssize(first.prompt);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const auto rows = [&] { return engine_.stats().n_rows - engine_.stats().n_drafted; };
    int64_t before = rows();
    ExpectEqual(RunOne(&engine_, first), answer, "the prompt");
    if (round > 0) {
      EXPECT_LE(rows() - before, 64 + 100) << "of " << n_prompt + 100;
    }
    before = rows();
    ExpectEqual(RunOne(&engine_, next), expected, "the next turn");
    EXPECT_LE(rows() - before, 64 + 10 + 100) << "of " << std::ssize(next.prompt) + 100;
  }
}

// The tokens of an answer as those of a prompt: the same bits, whatever is remembered of it,
// however few logits a step has room for, and with nothing behind the prompt.
TEST_F(DemoEngineTest, PromptLogprobsAreThoseOfTheAnswer) {
  Request request = Greedy(Ids("In the beginning"), 150);
  request.sampling.temperature = 1;
  request.seed = 8;
  request.logprobs = 3;
  request.ignore_eos = true;
  const SequenceResult answer = RunOne(&engine_, request);
  const size_t n_prompt = request.prompt.size();
  request.prompt.insert(request.prompt.end(), answer.token_ids.begin(), answer.token_ids.end());
  request.prompt_logprobs = true;
  request.max_tokens = 2;
  const SequenceResult scored = RunOne(&engine_, request);
  EXPECT_EQ(scored.token_ids.size(), 2u);
  ASSERT_EQ(scored.prompt_logprobs.size(), request.prompt.size() - 1);
  SequenceResult behind = answer;
  behind.logprobs.assign(scored.prompt_logprobs.begin() + static_cast<int64_t>(n_prompt) - 1,
                         scored.prompt_logprobs.end());
  ExpectEqual(behind, answer, "the answer's part");

  request.prompt_only = true;
  const RequestId ids[] = {engine_.Submit(request), engine_.Submit(request)};
  Results results;
  while (!engine_.idle()) {
    for (const Delta& delta : engine_.Step()) {
      EXPECT_EQ(delta.n_cached, 0);
      results[delta.id].Append(delta);
    }
  }
  for (const RequestId id : ids) {
    EXPECT_TRUE(results[id].token_ids.empty());
    EXPECT_EQ(results[id].finish, FinishReason::kLength);
    SequenceResult both = scored;
    both.logprobs = results[id].prompt_logprobs;
    SequenceResult expected = scored;
    expected.logprobs = scored.prompt_logprobs;
    ExpectEqual(both, expected, "no answer");
  }
}

// ---- what else runs does not matter ----

std::vector<Request> MixedRequests(int64_t vocab_size) {
  std::mt19937 random(11);
  std::vector<Request> requests;
  for (int i = 0; i < 16; ++i) {
    Request r;
    int64_t length = 1 + static_cast<int64_t>(random() % 20);
    if (i % 4 == 0) length = 1;
    if (i % 4 == 1) length = 60 + static_cast<int64_t>(random() % 4);  // soon needs a second block
    if (i == 7) length = 140;
    while (std::ssize(r.prompt) < length) {
      r.prompt.push_back(
          static_cast<TokenId>(3 + random() % static_cast<uint32_t>(vocab_size - 40)));
    }
    r.max_tokens = 1 + static_cast<int64_t>(random() % 12);
    r.ignore_eos = true;
    r.logprobs = 3;
    r.seed = static_cast<uint64_t>(i) << 33 | 9;
    if (i % 2 == 0) r.sampling.temperature = 0;
    if (i % 4 == 1) r.sampling.top_p = 0.9f;
    if (i % 4 == 3) r.sampling.repetition_penalty = 1.2f;
    requests.push_back(std::move(r));
  }
  return requests;
}

// Requests join at random steps.
std::vector<SequenceResult> RunMixed(const EngineOptions& options,
                                     const std::vector<Request>& requests, unsigned join_seed,
                                     int64_t* n_preemptions) {
  Executor executor(Loaded(options));
  executor.PoisonTemporaries();
  Engine engine(&executor);
  std::mt19937 random(join_seed);
  Results results;
  size_t next = 0;
  while (next < requests.size() || !engine.idle()) {
    while (next < requests.size() && (engine.idle() || random() % 3 != 0))
      engine.Submit(requests[next++]);
    for (const Delta& delta : engine.Step()) results[delta.id].Append(delta);
  }
  EXPECT_EQ(executor.kv().free_blocks() + executor.kv().n_idle_cached(), executor.kv().n_blocks());
  *n_preemptions = engine.stats().n_preemptions;
  std::vector<SequenceResult> ordered;
  for (auto& [id, result] : results) ordered.push_back(std::move(result));
  return ordered;
}

class InvarianceTest : public testing::TestWithParam<const char*> {};

TEST_P(InvarianceTest, TokensAndLogprobsDoNotDependOnBatchChunksOrThreads) {
  EngineOptions options = DemoOptions();
  options.model = GetParam();
  options.max_num_seqs = 1;
  int64_t n_preemptions;
  const std::vector<Request> requests =
      MixedRequests(ModelConfig::Load(options.model + "/config.json").vocab_size);
  const std::vector<SequenceResult> alone = RunMixed(options, requests, 0, &n_preemptions);
  ASSERT_EQ(alone.size(), requests.size());

  struct Variant {
    int64_t threads, max_num_seqs, max_num_batched_tokens, num_kv_blocks;
  };
  int64_t total_preemptions = 0;
  unsigned seed = 1;
  for (const Variant& v :
       {Variant{1, 8, 512, 0}, Variant{3, 16, 16, 0}, Variant{2, 5, 7, 0}, Variant{1, 8, 64, 3}}) {
    options.threads = v.threads;
    options.max_num_seqs = v.max_num_seqs;
    options.max_num_batched_tokens = v.max_num_batched_tokens;
    options.num_kv_blocks = v.num_kv_blocks;
    if (v.num_kv_blocks > 0) options.max_model_len = v.num_kv_blocks * kBlockTokens;
    const std::vector<SequenceResult> together =
        RunMixed(options, requests, seed++, &n_preemptions);
    total_preemptions += n_preemptions;
    ASSERT_EQ(together.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectEqual(together[i], alone[i],
                  "request " + std::to_string(i) + ", threads " + std::to_string(v.threads));
    }
  }
  EXPECT_GT(total_preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, InvarianceTest, testing::Values(kDemo, kTiny),
                         [](const auto& model) { return model.index == 0 ? "demo" : "tiny"; });

}  // namespace
}  // namespace deepinfer
