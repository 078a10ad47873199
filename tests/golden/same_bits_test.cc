// One result, whatever the path: the logits of a sequence are the same bits for every chunking of
// its prompt, every company in the batch, every placement in the caches, every bucket and every
// thread count, at each instruction set level and in each numerics mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "backend/cpu/select.h"
#include "base/error.h"
#include "engine/executor.h"

namespace deepinfer {
namespace {

const std::string kData = std::string(DI_SOURCE_DIR) + "/build/testdata";

using Tokens = std::vector<TokenId>;
using Bits = std::vector<uint32_t>;  // logits of consecutive positions

#ifdef DI_SANITIZED
constexpr size_t kLengths[] = {1, 2, 30, 11, 7};  // ten times slower
#else
constexpr size_t kLengths[] = {1, 2, 37, 90, 140};
#endif
constexpr int64_t kMaxSeqs = 5;

struct Setup {
  std::string checkpoint, numerics, isa;
};

std::unique_ptr<Executor> Load(const Setup& s, int64_t threads, int64_t batched) {
  return std::make_unique<Executor>(
      ExecutorOptions{.engine = {.model = kData + "/checkpoints/" + s.checkpoint,
                                 .max_model_len = 256,
                                 .max_num_batched_tokens = batched,
                                 .max_num_seqs = kMaxSeqs,
                                 .threads = threads,
                                 .isa = s.isa,
                                 .numerics = s.numerics},
                      .all_logits = true,
                      .progress = {}});
}

Tokens RandomTokens(const Executor& e, size_t n, std::mt19937* random) {
  std::uniform_int_distribution<TokenId> id(0, static_cast<TokenId>(e.config().vocab_size - 1));
  Tokens tokens(n);
  for (TokenId& t : tokens) t = id(*random);
  return tokens;
}

void Append(std::span<const float> logits, Bits* bits) {
  for (float v : logits) bits->push_back(std::bit_cast<uint32_t>(v));
}

SeqSlot OpenWith(Executor& e, size_t tokens) {
  const SeqSlot slot = e.kv().Open();
  EXPECT_TRUE(slot >= 0 && e.kv().Reserve(slot, static_cast<int64_t>(tokens)));
  return slot;
}

// Computes the next `rows` positions of one sequence alone.
Bits Extend(Executor& e, SeqSlot slot, const Tokens& tokens, int64_t rows) {
  const int64_t first = e.kv().length(slot);
  const SeqRows seq{slot, std::span(tokens).first(static_cast<size_t>(first + rows)), first, rows};
  Bits bits;
  Append(e.Step({&seq, 1}), &bits);
  e.kv().SetLength(slot, first + rows);
  return bits;
}

// The whole sequence alone, in steps of at most `chunk` rows.
Bits Alone(Executor& e, const Tokens& tokens, int64_t chunk) {
  const SeqSlot slot = OpenWith(e, tokens.size());
  Bits bits;
  for (int64_t first = 0, n = static_cast<int64_t>(tokens.size()); first < n; first += chunk) {
    const Bits more = Extend(e, slot, tokens, std::min(chunk, n - first));
    bits.insert(bits.end(), more.begin(), more.end());
  }
  e.kv().Close(slot);
  return bits;
}

// Leaves slots and blocks of an empty pool in another order.
void ShufflePool(Executor& e, std::mt19937* random) {
  std::vector<SeqSlot> slots;
  for (int64_t i = 0; i < kMaxSeqs; ++i) slots.push_back(OpenWith(e, 1));
  for (int i = 0; i < 8; ++i) {
    const SeqSlot slot = slots[(*random)() % slots.size()];
    EXPECT_TRUE(e.kv().Reserve(slot, static_cast<int64_t>((*random)() % 256 + 1)));
  }
  std::shuffle(slots.begin(), slots.end(), *random);
  for (SeqSlot slot : slots) e.kv().Close(slot);
}

// All sequences together: every step takes random sequences in random order, each with a random
// number of rows, none included.
std::vector<Bits> RandomSchedule(Executor& e, const std::vector<Tokens>& texts,
                                 std::mt19937* random, bool poison) {
  const size_t n = texts.size();
  std::vector<SeqSlot> slots;
  std::vector<Bits> bits(n);
  for (const Tokens& text : texts) slots.push_back(OpenWith(e, text.size()));
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  const auto left = [&](size_t i) {
    return static_cast<int64_t>(texts[i].size()) - e.kv().length(slots[i]);
  };
  while (std::any_of(order.begin(), order.end(), [&](size_t i) { return left(i) > 0; })) {
    std::shuffle(order.begin(), order.end(), *random);
    std::vector<SeqRows> step;
    std::vector<size_t> members;
    int64_t room = e.options().max_num_batched_tokens;
    for (size_t i : order) {
      if ((*random)() % 4 == 0) continue;
      const int64_t most = std::min(room, left(i)), first = e.kv().length(slots[i]);
      const int64_t rows = (*random)() % 2 == 0 ? std::min<int64_t>(most, 1)
                                                : static_cast<int64_t>((*random)() % (most + 1));
      room -= rows;
      step.push_back(
          {slots[i], std::span(texts[i]).first(static_cast<size_t>(first + rows)), first, rows});
      members.push_back(i);
    }
    if (poison) e.PoisonTemporaries();
    std::span<const float> logits = e.Step(step);
    for (size_t m = 0; m < step.size(); ++m) {
      const size_t values = static_cast<size_t>(step[m].n_logits * e.config().vocab_size);
      Append(logits.first(values), &bits[members[m]]);
      logits = logits.subspan(values);
      e.kv().SetLength(step[m].slot, static_cast<int64_t>(step[m].tokens.size()));
    }
    EXPECT_TRUE(logits.empty());
  }
  for (SeqSlot slot : slots) e.kv().Close(slot);
  return bits;
}

class SameBitsTest : public ::testing::TestWithParam<Setup> {};

TEST_P(SameBitsTest, AnySchedule) {
  std::mt19937 random(7);
  const auto plain = Load(GetParam(), 1, 256);
  std::vector<Tokens> texts;
  std::vector<Bits> want;
  for (size_t length : kLengths) {
    texts.push_back(RandomTokens(*plain, length, &random));
    want.push_back(Alone(*plain, texts.back(), 256));
  }
  const struct {
    int64_t threads, batched;
    bool poison;
  } paths[] = {{1, 64, true}, {2, 17, false}, {3, 7, true}};
  for (const auto& path : paths) {
    const auto e = Load(GetParam(), path.threads, path.batched);
    ShufflePool(*e, &random);
    const std::vector<Bits> got = RandomSchedule(*e, texts, &random, path.poison);
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_TRUE(got[i] == want[i]) << texts[i].size() << " tokens, " << path.threads
                                     << " threads, " << path.batched << " rows a step";
    }
  }
}

// Phases that share no barrier are independent: any order of them gives the same bits.
TEST_P(SameBitsTest, AnyOrderOfIndependentPhases) {
  std::mt19937 random(17);
  const auto plain = Load(GetParam(), 1, 64), shuffled = Load(GetParam(), 3, 16);
  const Tokens text = RandomTokens(*plain, 40, &random);
  const Bits want = Alone(*plain, text, 64);
  shuffled->ShufflePhases(1);
  for (int64_t chunk : {1, 16}) {
    shuffled->PoisonTemporaries();
    EXPECT_TRUE(Alone(*shuffled, text, chunk) == want) << "rows a step: " << chunk;
  }
}

// Going back is a smaller length: what follows equals a fresh start, whatever was there before.
TEST_P(SameBitsTest, Rollback) {
  std::mt19937 random(11);
  const auto e = Load(GetParam(), 1, 24);
  const Tokens rejected = RandomTokens(*e, 90, &random);
  Tokens text = rejected;
  const SeqSlot slot = OpenWith(*e, 256);
  for (int64_t rows : {24, 16, 10}) Extend(*e, slot, text, rows);
  for (int64_t back : {1, 2, 3, 7, 24}) {
    const int64_t length = e->kv().length(slot) - back;
    e->kv().SetLength(slot, length);
    text.resize(static_cast<size_t>(length));
    const Tokens more = RandomTokens(*e, 9, &random);
    text.insert(text.end(), more.begin(), more.end());
    const Bits got = Extend(*e, slot, text, 9);
    const Bits fresh = Alone(*e, text, 24);
    ASSERT_GE(fresh.size(), got.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), fresh.end() - static_cast<int64_t>(got.size())))
        << "back by " << back;
  }
}

std::vector<Setup> Setups() {
  std::vector<Setup> setups;
  for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
    for (const char* numerics : {"fp32", "release", "trn2"}) {
      for (const char* checkpoint : {"tiny", "tiny-odd"})
        setups.push_back({checkpoint, numerics, isa});
    }
  }
  return setups;
}

INSTANTIATE_TEST_SUITE_P(All, SameBitsTest, ::testing::ValuesIn(Setups()), [](const auto& test) {
  std::string name = test.param.isa + "_" + test.param.numerics + "_" + test.param.checkpoint;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ExecutorTest, StepsWithoutRows) {
  const auto e = Load({"tiny", "release", "auto"}, 2, 16);
  EXPECT_TRUE(e->Step({}).empty());
  const Tokens text = {5, 6, 7};
  const SeqSlot slot = OpenWith(*e, text.size());
  const SeqRows fresh{slot, {}, 0, 0};
  EXPECT_TRUE(e->Step({&fresh, 1}).empty());
  const Bits want = Alone(*e, text, 3);
  Bits got = Extend(*e, slot, text, 2);
  const SeqRows idle{slot, std::span(text).first(2), 2, 0};
  EXPECT_TRUE(e->Step({&idle, 1}).empty());
  const Bits last = Extend(*e, slot, text, 1);
  got.insert(got.end(), last.begin(), last.end());
  EXPECT_TRUE(got == want);
}

TEST(ExecutorTest, IdsOutsideTheVocabularyAreRefusedAndChangeNothing) {
  const auto e = Load({"tiny", "release", "auto"}, 1, 16);
  const TokenId vocab = static_cast<TokenId>(e->config().vocab_size);
  const Tokens text = {5, 6, 7, 8};
  const Bits want = Alone(*e, text, 4);
  const SeqSlot slot = OpenWith(*e, text.size());
  Bits got = Extend(*e, slot, text, 2);
  for (TokenId bad : {-1, vocab, INT32_MAX, INT32_MIN}) {
    const Tokens wrong = {5, 6, 7, bad};
    const SeqRows seq{slot, wrong, 2, 2};
    try {
      e->Step({&seq, 1});
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("position 3"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(bad)));
    }
  }
  const Bits rest = Extend(*e, slot, text, 2);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_TRUE(got == want);
}

Tokens Greedy(Executor& e, Tokens text, int count) {
  const SeqSlot slot = OpenWith(e, text.size() + static_cast<size_t>(count));
  Tokens out;

  for (int i = 0; i < count; ++i) {
    const SeqRows seq{slot, text, e.kv().length(slot), 1};
    const std::span<const float> logits = e.Step({&seq, 1});
    e.kv().SetLength(slot, static_cast<int64_t>(text.size()));
    out.push_back(
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    text.push_back(out.back());
  }
  e.kv().Close(slot);
  return out;
}

TEST(ExecutorTest, EveryLevelGivesTheSameTokensInFp32) {
  for (const char* checkpoint : {"tiny", "tiny-odd"}) {
    std::mt19937 random(13);
    std::vector<Tokens> texts;
    std::vector<Tokens> want;
    for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
      const auto e = Load({checkpoint, "fp32", isa}, 2, 128);
      EXPECT_EQ(e->options().isa, isa);
      for (size_t n : {1u, 16u, 60u}) {
        if (isa == "generic") {
          texts.push_back(RandomTokens(*e, n, &random));
          want.push_back(Greedy(*e, texts.back(), 12));
        }
      }
      for (size_t i = 0; i < texts.size(); ++i)
        EXPECT_EQ(Greedy(*e, texts[i], 12), want[i]) << checkpoint << " " << isa;
    }
  }
}

}  // namespace
}  // namespace deepinfer
