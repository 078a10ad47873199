// Forced drafts: whatever is drafted, and however much of it is right, the answer is that of plain
// decoding.
//
// The seed of what is drafted is gtest's: --gtest_shuffle --gtest_repeat=N gives N other rounds.
#include <gtest/gtest.h>

#include <random>

#include "engine_runs.h"
#include "grammar/grammar.h"

namespace deepinfer {
namespace {

uint32_t Seed() { return static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed()); }

// Drafts the first `right` tokens of the known answer and wrong ones behind them.
class Forced : public PlantedDrafts {
 public:
  static constexpr int64_t kRandom = -1;  // any number of them, anew for each block

  Forced(int64_t vocab_size, int64_t right)
      : vocab_size_(static_cast<uint32_t>(vocab_size)), right_(right), random_(Seed()) {}

  // What a request will say, behind its prompt.
  void Expect(RequestId id, const Request& request, const Tokens& answer) {
    texts_[id] = request.prompt;
    texts_[id].insert(texts_[id].end(), answer.begin(), answer.end());
  }

  void Drafted(RequestId id, int64_t n_tokens, std::span<TokenId> tokens,
               std::span<float>) override {
    const Tokens& text = texts_.at(id);
    const auto block = static_cast<uint32_t>(tokens.size());
    const int64_t n = right_ == kRandom ? static_cast<int64_t>(random_() % (block + 1)) : right_;
    for (int64_t i = 0; i < std::ssize(tokens); ++i) {
      const int64_t at = n_tokens + i;
      const TokenId next = at < std::ssize(text) ? text[static_cast<size_t>(at)] : -1;
      TokenId& token = tokens[static_cast<size_t>(i)];
      token = i < n && next >= 0 ? next : static_cast<TokenId>(random_() % vocab_size_);
      if (i == n && token == next) token = token == 0 ? 1 : token - 1;
    }
  }
  std::optional<bool> Accepts(RequestId, int64_t, int64_t) override { return std::nullopt; }

 private:
  const uint32_t vocab_size_;
  const int64_t right_;
  std::mt19937 random_;
  std::map<RequestId, Tokens> texts_;
};

// Answers with these drafts, where `expected` are those without.
std::vector<SequenceResult> ForcedAnswers(Engine& engine, Forced& forced,
                                          const std::vector<Request>& requests,
                                          const std::vector<SequenceResult>& expected) {
  engine.PlantDrafts(&forced);
  std::map<RequestId, SequenceResult> results;
  for (size_t i = 0; i < requests.size(); ++i)
    forced.Expect(engine.Submit(requests[i]), requests[i], expected[i].token_ids);
  while (!engine.idle()) {
    for (const Delta& delta : engine.Step()) results[delta.id].Append(delta);
  }
  std::vector<SequenceResult> ordered;
  for (auto& [id, result] : results) ordered.push_back(std::move(result));
  return ordered;
}

// ---- every depth, every number of right drafts, every alignment ----

struct Setting {
  const char* name;
  const char* checkpoint;
  int64_t max_num_batched_tokens;  // chunks of prompts end at its multiples
};

class ForcedDrafts : public testing::TestWithParam<Setting> {};

// Short answers behind prompts that end at borders of chunks and pages. Then long answers, one
// token apart: blocks of n right drafts and one token begin, in the first n + 1 of them, at each
// position, and so at each place of windows of 7 and 16 rows, their rings, groups of 2 and pages
// of 64.
constexpr int64_t kShort = 5;
#ifdef DI_SANITIZED  // ten times slower
constexpr int64_t kEnd = 70, kDepthStep = 5;
#else
constexpr int64_t kEnd = 140, kDepthStep = 1;
#endif
std::vector<Request> RequestsAtEveryAlignment(const ModelConfig& config, int64_t chunk) {
  std::mt19937 random(31);
  std::vector<Request> requests;
  const auto add = [&](int64_t n_prompt, int64_t n_answer) {
    Request r = GreedyRequest({}, n_answer);
    while (std::ssize(r.prompt) < n_prompt) {
      const auto id = static_cast<TokenId>(random() % static_cast<uint32_t>(config.vocab_size));
      if (id != config.image_token_id) r.prompt.push_back(id);
    }
    if (n_prompt % 2 == 0) r.sampling.temperature = 0.9f;
    r.seed = n_prompt;
    r.logprobs = 1;
    requests.push_back(std::move(r));
  };
  for (int64_t n : {chunk - 1, chunk, chunk + 1, int64_t{63}, int64_t{64}}) add(n, 8);
  for (int64_t n = 1; n <= config.dspark_block_size + 1; ++n) add(n, kEnd - n);
  return requests;
}

TEST_P(ForcedDrafts, LeaveTheAnswerOfPlainDecoding) {
  EngineOptions options = DraftOptions(TestCheckpoint(GetParam().checkpoint));
  options.max_num_batched_tokens = GetParam().max_num_batched_tokens;
  options.speculative = "off";
  Executor plain = Load(options);
  const int64_t block = plain.config().dspark_block_size, vocab_size = plain.config().vocab_size;
  const std::vector<Request> all =
      RequestsAtEveryAlignment(plain.config(), options.max_num_batched_tokens);
  const std::vector<SequenceResult> expected = Answers(plain, all);
  options.speculative = "exact";
  for (int64_t depth = 0; depth <= block; depth += kDepthStep) {
    options.num_speculative_tokens = depth;
    Executor executor = Load(options);
    for (int64_t right = 0; right <= depth; ++right) {
      SCOPED_TRACE(testing::Message() << "depth " << depth << ", " << right << " right");
      const std::vector<Request> requests(all.begin(), all.begin() + kShort + right + 1);
      Engine engine(&executor);
      Forced forced(vocab_size, right);
      const std::vector<SequenceResult> found = ForcedAnswers(engine, forced, requests, expected);
      for (size_t i = 0; i < requests.size(); ++i) {
        ExpectSame(found[i], expected[i], "prompt of " + std::to_string(requests[i].prompt.size()));
      }
      const std::vector<int64_t> accepted_at = engine.stats().accepted_at;
      for (int64_t i = 0; i < std::ssize(accepted_at); ++i)
        EXPECT_EQ(accepted_at[static_cast<size_t>(i)] > 0, i < right) << i;
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, ForcedDrafts,
                         testing::Values(Setting{"tiny", "tiny", 24},
                                         Setting{"tiny_odd", "tiny-odd", 24}),
                         [](const auto& c) { return c.param.name; });

// ---- openers of tool calls ----

const std::string kOpener = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n";

// A grammar leaves nothing but openers: the text is known without the model. Blocks of drafts begin
// and break off anywhere in them. A round has 240.
TEST(ForcedOpeners, AreExact) {
#ifdef DI_SANITIZED
  constexpr int kOpeners = 4;
#else
  constexpr int kOpeners = 12;
#endif
  std::string text;
  for (int i = 0; i < kOpeners; ++i) text += kOpener;
  GrammarBuilder builder;
  const int32_t root = builder.Rule(builder.Text(text));

  EngineOptions options = DraftOptions(kDemo);
  options.max_model_len = 2048;
  options.max_num_batched_tokens = 64;
  for (int64_t depth = 1; depth <= 5; ++depth) {
    options.num_speculative_tokens = depth;
    Executor executor = Load(options);
    Request request = GreedyRequest({0, 5, 6}, 2000);
    request.ignore_eos = false;
    request.grammar = builder.Finish(root, /*has_markup=*/true);
    SequenceResult expected;
    expected.token_ids = executor.tokenizer().Encode(text);
    std::vector<Request> requests(4, request);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt.resize(3, static_cast<TokenId>(i));
      requests[i].seed = i;
      requests[i].sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    }
    Engine engine(&executor);
    Forced forced(executor.config().vocab_size, Forced::kRandom);
    for (const SequenceResult& found :
         ForcedAnswers(engine, forced, requests, std::vector(requests.size(), expected))) {
      EXPECT_EQ(found.text, text) << "seed " << Seed() << ", depth " << depth;
    }
    EXPECT_GT(engine.stats().n_accepted(), 0);
    EXPECT_LT(engine.stats().n_accepted(), engine.stats().n_drafted);
  }
}

}  // namespace
}  // namespace deepinfer
