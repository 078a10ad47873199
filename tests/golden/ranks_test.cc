// One result, whatever the number of ranks: logits and drafts of every layout are the bits of one
// rank, at each instruction set level and in each numerics mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "backend/cpu/select.h"
#include "base/error.h"
#include "engine/engine.h"
#include "rank_runs.h"

namespace deepinfer {
namespace {

// Two sequences in chunks and steps they share, a draft for both, and a rollback.
Bits RunAll(Executor& e) {
  std::mt19937 random(3);
  std::uniform_int_distribution<TokenId> id(0, static_cast<TokenId>(e.config().vocab_size - 1));
  std::vector<Tokens> texts(2, Tokens(48));
  for (Tokens& text : texts) std::generate(text.begin(), text.end(), [&] { return id(random); });
  Bits bits;
  SeqSlot slots[2];
  for (SeqSlot& slot : slots) {
    slot = e.kv().Open();
    EXPECT_TRUE(e.kv().Reserve(slot, 64));
  }
  const auto step = [&](int64_t n0, int64_t n1) {
    std::vector<SeqRows> rows;
    for (const auto& [i, n] : {std::pair{0, n0}, {1, n1}}) {
      const int64_t first = e.kv().length(slots[i]);
      rows.push_back(
          {slots[i], std::span(texts[i]).first(static_cast<size_t>(first + n)), first, n});
    }
    Append(e.Step(rows), &bits);
    for (const SeqRows& r : rows) e.kv().SetLength(r.slot, std::ssize(r.tokens));
  };
  step(20, 0), step(1, 23), step(1, 1), step(5, 7);
  const DraftSeq seqs[] = {{slots[0], texts[0][27], 0, 1, 0, Stream::kDraft},
                           {slots[1], texts[1][31], 0.7f, 2, 0, Stream::kDraft}};
  const Drafts drafts = e.Draft(seqs);
  Append(drafts.logits, &bits), Append(drafts.confidence, &bits);
  bits.insert(bits.end(), drafts.tokens.begin(), drafts.tokens.end());
  e.kv().SetLength(slots[0], 24);
  step(4, 1);
  for (SeqSlot slot : slots) e.kv().Close(slot);
  return bits;
}

struct Model {
  std::string checkpoint, numerics, isa;
};

// Experts, heads and columns of tiny-odd fit few worlds.
std::vector<World> WorldsOf(const Model& m) {
#ifdef DI_SANITIZED
  return {{"tp", 2}, {"tp8r", 8}, {"tp", 4, 2}};
#endif
  if (m.isa == "generic") return {{"tp", 4}, {"dp", 2}};
  if (m.checkpoint == "tiny-odd") return {{"ep", 3}, {"ep", 9}, {"dp", 3}, {"ep", 9, 3}};
  return {{"ep", 2},     {"tp", 2, 0, "rows-bf16"},
          {"tp", 4},     {"tp", 8, 0, "rows-fp8"},
          {"tp8r", 16},  {"dp", 2},
          {"tp", 4, 2},  {"dp", 8},
          {"tp", 16, 4}, {"tp8r", 16, 8}};
}

class RanksBitsTest : public ::testing::TestWithParam<Model> {};

TEST_P(RanksBitsTest, EveryLayoutGivesTheBitsOfOneRank) {
  const Model& m = GetParam();
  const ExecutorOptions options = Options(m.checkpoint, m.numerics, m.isa);
  Executor alone(options);
  const Bits want = RunAll(alone);
  EXPECT_FALSE(want.empty());
  for (const World& world : WorldsOf(m)) {
    EXPECT_TRUE(OnRanks<Bits>(options, world.ranks, world.options(), RunAll) == want)
        << world.layout << " on " << world.ranks << " ranks, batches of " << world.batch_ranks;
  }
}

std::vector<Model> Models() {
#ifdef DI_SANITIZED
  return {{"tiny", "release", "auto"}};
#else
  std::vector<Model> models = {{"tiny", "release", "generic"}};
  for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
    if (isa == "generic") continue;
    for (const char* numerics : {"fp32", "release", "trn2"}) {
      models.push_back({"tiny", numerics, isa});
      models.push_back({"tiny-odd", numerics, isa});
    }
  }
  return models;
#endif
}

INSTANTIATE_TEST_SUITE_P(All, RanksBitsTest, ::testing::ValuesIn(Models()), [](const auto& test) {
  std::string name = test.param.isa + "_" + test.param.numerics + "_" + test.param.checkpoint;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Threads of a rank share columns of what others fill in.
TEST(RanksTest, ThreadsOfARankChangeNoBit) {
  ExecutorOptions options = Options("tiny", "release", "auto");
  Executor alone(options);
  const Bits want = RunAll(alone);
  options.engine.threads = 3;
  for (const World& world : SomeOf({{"tp", 2, 0, "rows-bf16"}, {"tp", 4, 2}})) {
    EXPECT_TRUE(OnRanks<Bits>(options, world.ranks, world.options(), RunAll) == want)
        << world.layout << " on " << world.ranks << " ranks, batches of " << world.batch_ranks;
  }
}

// Greedy answers and the logits they were taken from, prompts first.
struct Answer {
  Tokens tokens;
  std::vector<std::vector<float>> logits;
};
constexpr size_t kPromptTokens = 12, kAnswerTokens = 20;

// Beginnings that the trained model knows; the other has no words.
std::vector<Tokens> Prompts(const Executor& e) {
  std::vector<Tokens> prompts;
  if (!e.model_dir().ends_with("demo")) {
    std::mt19937 random(5);
    std::uniform_int_distribution<TokenId> id(3, 600);
    prompts.resize(9, Tokens(kPromptTokens));
    for (Tokens& p : prompts) std::generate(p.begin(), p.end(), [&] { return id(random); });
    return prompts;
  }
  for (const char* text :
       {"In the beginning God created the heaven and the earth. And the earth was without form",
        "And God said, Let there be light: and there was light. And God saw the light",
        "Now there was a man in the land of Egypt, whose name was Joseph, and he went",
        "And it came to pass in those days, that there went out a decree from the king",
        "And the LORD spake unto Moses, saying, Speak unto the children of Israel, that they",
        "The sons of David were these, that were born unto him in Hebron; the firstborn",
        "Blessed is the man that walketh not in the counsel of the ungodly, nor standeth",
        "Then said Jesus unto them, Verily, verily, I say unto you, I am the door of the",
        "And Solomon the son of David was strengthened in his kingdom, and the LORD his God"}) {
    prompts.push_back(EncodePrompt(e, text));
    prompts.back().resize(kPromptTokens);
  }
  return prompts;
}

std::vector<Answer> GreedyAnswers(Executor& e) {
  const std::vector<Tokens> prompts = Prompts(e);
  std::vector<Answer> answers(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Answer& a = answers[i];
    Tokens tokens = prompts[i];
    const SeqSlot slot = e.kv().Open();
    EXPECT_TRUE(e.kv().Reserve(slot, kPromptTokens + kAnswerTokens));
    while (a.tokens.size() < kAnswerTokens) {
      const int64_t first = e.kv().length(slot), n = std::ssize(tokens) - first;
      const SeqRows rows[] = {{slot, tokens, first, n}};
      const auto logits = e.Step(rows);
      e.kv().SetLength(slot, std::ssize(tokens));
      const auto width = static_cast<size_t>(e.config().vocab_size);
      for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
        const auto row = logits.subspan(r * width, width);
        a.logits.emplace_back(row.begin(), row.end());
      }
      const std::vector<float>& last = a.logits.back();
      a.tokens.push_back(
          static_cast<TokenId>(std::max_element(last.begin(), last.end()) - last.begin()));
      tokens.push_back(a.tokens.back());
    }
    e.kv().Close(slot);
  }
  return answers;
}

// Where the tokens first differ the two best logits of `want` are closer than four times what the
// logits in front of it differ by, and `got` took one of them. Returns whether they differ at all.
bool DiffersAtNearTie(const Answer& want, const Answer& got) {
  float most = 0;
  for (size_t i = 0; i < want.logits.size(); ++i) {
    for (size_t t = 0; t < want.logits[i].size(); ++t)
      most = std::max(most, std::abs(want.logits[i][t] - got.logits[i][t]));
    if (i + 1 < kPromptTokens) continue;
    const size_t n = i + 1 - kPromptTokens;
    if (want.tokens[n] == got.tokens[n]) continue;
    std::vector<float> best = want.logits[i];
    std::partial_sort(best.begin(), best.begin() + 2, best.end(), std::greater<>());
    EXPECT_LT(best[0] - best[1], 4 * most);
    EXPECT_GE(want.logits[i][static_cast<size_t>(got.tokens[n])], best[1]);
    return true;
  }
  return false;
}

// Partial sums in another order: tokens are those of one rank but for near ties (docs/ranks.md).
void ExpectNearTiesOnly(const ExecutorOptions& options, const std::vector<World>& worlds,
                        int most) {
  Executor alone(options);
  const std::vector<Answer> want = GreedyAnswers(alone);
  for (const World& world : SomeOf(worlds)) {
    const auto got =
        OnRanks<std::vector<Answer>>(options, world.ranks, world.options(), GreedyAnswers);
    int ties = 0;
    for (size_t i = 0; i < want.size(); ++i) ties += DiffersAtNearTie(want[i], got[i]) ? 1 : 0;
    EXPECT_LE(ties, most) << world.layout << " on " << world.ranks << " ranks";
  }
}

// Without roundings all answers are the same (measured: none of nine differs).
TEST(FastSumsTest, UnroundedAnswersAreThoseOfOneRank) {
  ExpectNearTiesOnly(Options("tiny", "fp32", "auto"),
                     {{"tp", 4, 0, "rows-bf16", "fast"},
                      {"tp", 2, 0, "rows-fp8", "fast"},
                      {"ep", 2, 0, "host", "fast"},
                      {"tp", 8, 0, "host", "fast"},
                      {"tp8r", 8, 0, "host", "fast"}},
                     1);
}

// Rounded numerics make noise of one bit (docs/numerics.md): of nine answers of 20 tokens three
// part, each at a near tie. A model with random weights knows nothing but near ties.
TEST(FastSumsTest, RoundedAnswersPartAtNearTies) {
  ExecutorOptions options = Options("tiny", "release", "auto");
  options.engine.model = std::string(DI_SOURCE_DIR) + "/models/demo";
  ExpectNearTiesOnly(options,
                     {{"ep", 2, 0, "host", "fast"},
                      {"tp", 2, 0, "rows-fp8", "fast"},
                      {"tp", 4, 0, "rows-bf16", "fast"},
                      {"tp8r", 8, 0, "host", "fast"}},
                     3);
}

TEST(FastSumsTest, OneLayoutHasTheSameBitsEveryTime) {
  const ExecutorOptions options = Options("tiny", "release", "auto");
  const LayoutOptions layout{"tp", 4, 0, "fast", "rows-fp8"};
  const Bits first = OnRanks<Bits>(options, 4, layout, RunAll);
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(OnRanks<Bits>(options, 4, layout, RunAll) == first);
}

// Every rank of a world; what each of them ended with.
std::vector<std::string> EndsOf(int ranks, const std::function<void(int, ExecutorOptions)>& body) {
  const auto comms = MakeThreadWorld(ranks, std::chrono::seconds(5));
  std::vector<std::string> ends(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      ExecutorOptions o = Options("tiny", "release", "auto");
      o.engine.rank_timeout_s = 5;
      o.world = comms[static_cast<size_t>(r)].get();
      try {
        body(r, o);
      } catch (const Error& e) {
        ends[static_cast<size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return ends;
}

TEST(RanksTest, ARankThatLeavesEndsInAnErrorOnEveryRank) {
  const auto ends = EndsOf(4, [](int rank, ExecutorOptions o) {
    Executor e(o);
    if (rank == 0) RunAll(e);
    if (rank == 1 || rank == 3) e.Follow();
  });
  EXPECT_THAT(ends[0], ::testing::HasSubstr("expected 4 ranks within 5000 ms, missing 2"));
  EXPECT_EQ(ends[1], ends[0]);
  EXPECT_EQ(ends[2], "");
  EXPECT_EQ(ends[3], ends[0]);
}

TEST(RanksTest, ARankThatCannotLoadEndsInItsErrorOnEveryRank) {
  const auto ends = EndsOf(2, [](int rank, ExecutorOptions o) {
    if (rank == 1) o.engine.max_num_batched_tokens = 12;
    Executor e(o);
    if (rank == 0) RunAll(e);
  });
  EXPECT_THAT(ends[1], ::testing::StartsWith("rank 1: expected the options of rank 0 (24 rows"));
  EXPECT_EQ(ends[0], "rank 1: " + ends[1]);
}

// Every request of `prompts` at once; the bits of the answers, and what is told of them.
Bits Answers(Engine* engine, const std::vector<Tokens>& prompts, int64_t* n_cached) {
  for (const Tokens& prompt : prompts) {
    Request request;
    request.prompt = prompt;
    request.sampling.temperature = 0.8f;
    request.seed = 5;
    request.max_tokens = 60;
    request.ignore_eos = true;
    request.logprobs = 2;
    engine->Submit(request);
  }
  std::map<RequestId, Bits> bits;
  while (!engine->idle()) {
    for (const Delta& delta : engine->Step()) {
      EXPECT_EQ(delta.error, "");
      *n_cached = std::max(*n_cached, delta.n_cached);
      for (const TokenLogprob& t : delta.logprobs) {
        bits[delta.id].push_back(static_cast<uint32_t>(t.id));
        bits[delta.id].push_back(std::bit_cast<uint32_t>(static_cast<float>(t.logprob)));
      }
    }
  }
  Bits all;
  for (const auto& [id, b] : bits) all.insert(all.end(), b.begin(), b.end());
  return all;
}

// Prompts that go on from what others left, one that is put back for want of blocks and goes on
// from its own.
Bits RunShared(Executor& e) {
  std::mt19937 random(7);
  std::uniform_int_distribution<TokenId> id(3, 60);
  Tokens common(130), other(130);
  for (Tokens* text : {&common, &other})
    std::generate(text->begin(), text->end(), [&] { return id(random); });
  Tokens longer = common;
  longer.insert(longer.end(), other.begin(), other.begin() + 20);
  Engine engine(&e);
  int64_t n_cached = 0;
  Bits bits = Answers(&engine, {common}, &n_cached);
  EXPECT_EQ(n_cached, 0);
  for (const std::vector<Tokens>& prompts :
       {std::vector{longer, other}, std::vector{other, common, longer}}) {
    const Bits more = Answers(&engine, prompts, &n_cached);
    bits.insert(bits.end(), more.begin(), more.end());
  }
  EXPECT_EQ(n_cached, e.options().prefix_cache_mib > 0 ? 128 : 0);
  EXPECT_GT(engine.stats().n_preemptions, 0);
  return bits;
}

TEST(RanksTest, WhatOthersHaveComputedGivesTheSameBits) {
  ExecutorOptions o = Options("tiny", "release", "auto");
  o.engine.max_model_len = 256;
  o.engine.num_kv_blocks = 6;
  o.engine.prefix_cache_mib = 8;
  o.engine.draft_depth = "fixed";
  Executor alone(o);
  const Bits want = RunShared(alone);
  EXPECT_EQ(alone.options().prefix_cache_mib, 8);
  for (const World& world : SomeOf({{"tp", 2}, {"ep", 4}, {"tp", 4, 2}})) {
    EXPECT_TRUE(OnRanks<Bits>(o, world.ranks,
                              {.layout = world.layout, .batch_ranks = world.batch_ranks},
                              RunShared) == want)
        << world.layout << " on " << world.ranks << " ranks, batches of " << world.batch_ranks;
  }
}

TEST(RanksTest, AnEngineEndsAllItsRequestsWhenARankIsGone) {
  const auto ends = EndsOf(2, [](int rank, ExecutorOptions o) {
    Executor e(o);
    if (rank == 1) return;
    Engine engine(&e);
    Request request;
    request.prompt = {1, 2, 3};
    for (int i = 0; i < 5; ++i) engine.Submit(request);  // more than run at once
    const std::vector<Delta> deltas = engine.Step();
    EXPECT_EQ(deltas.size(), 5u);
    for (const Delta& delta : deltas) EXPECT_EQ(delta.error, engine.failure());
    EXPECT_TRUE(engine.idle());
    EXPECT_THAT(engine.failure(), ::testing::HasSubstr("expected 2 ranks within 5000 ms"));
  });
  EXPECT_EQ(ends[0] + ends[1], "");
}

TEST(RanksTest, WhatRanksCannotDoIsRefusedByName) {
  const auto ends = EndsOf(2, [](int, ExecutorOptions o) {
    o.engine.tensor_parallel_size = 4;
    Executor e(o);
  });
  EXPECT_EQ(ends[0],
            "--tensor-parallel-size: expected 2 (--layout tp on 2 ranks, see mpirun -n), found 4");
  const auto layouts = EndsOf(3, [](int, ExecutorOptions o) { Executor e(o); });
  EXPECT_THAT(layouts[2], ::testing::StartsWith("--layout tp on 3 ranks: expected a number"));
}

// Batches with many rows, few and none, and a driver that asks for figures after every step: nobody
// waits for a call that others do not make.
TEST(RanksTest, AThousandUnevenStepsWithFiguresEnd) {
#ifdef DI_SANITIZED
  constexpr int kSteps = 60;
#else
  constexpr int kSteps = 1000;
#endif
  ExecutorOptions options = Options("tiny", "release", "auto");
  options.engine.rank_timeout_s = 20;
  const auto run = [](Executor& e) {
    std::mt19937 random(11);
    std::vector<SeqSlot> slots(3);
    const Tokens text(40, 7);
    for (SeqSlot& slot : slots) slot = e.kv().Open();
    int64_t calls = 0;
    for (int i = 0; i < kSteps; ++i) {
      std::vector<SeqRows> rows;
      for (SeqSlot& slot : slots) {
        if (random() % 2 == 0 && (&slot != &slots.back() || !rows.empty())) continue;
        if (e.kv().length(slot) > 30) {
          e.kv().Close(slot);
          slot = e.kv().Open();
        }
        EXPECT_TRUE(e.kv().Reserve(slot, 40));
        const int64_t first = e.kv().length(slot), n = 1 + static_cast<int64_t>(random() % 5);
        rows.push_back({slot, std::span(text).first(static_cast<size_t>(first + n)), first, 1});
      }
      e.Step(rows);
      for (const SeqRows& r : rows) e.kv().SetLength(r.slot, std::ssize(r.tokens));
      calls += e.TakeExchanges().calls;
    }
    return calls;
  };
  EXPECT_GT(OnRanks<int64_t>(options, 2, {.layout = "dp"}, run), kSteps);
  EXPECT_GT(OnRanks<int64_t>(options, 4, {.layout = "tp"}, run), kSteps);
}

}  // namespace
}  // namespace deepinfer
