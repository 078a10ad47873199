// The scheduler against a fake executor whose next token depends on every token of the sequence, as
// its caches hold them.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "base/error.h"

namespace deepinfer {
namespace {

KvShape SmallShape(int64_t max_step_rows) {
  return {.n_layers = 1,
          .window = 4,
          .max_step_rows = max_step_rows,
          .draft_rows = 5,
          .window_row_bytes = 4,
          .compressed_row_bytes = 4,
          .index_row_bytes = 4,
          .raw_cols = 1,
          .owners = {{0, 1}}};
}

TokenId NextToken(const std::vector<TokenId>& tokens) {
  uint32_t hash = 17;
  for (TokenId t : tokens) hash = hash * 31 + static_cast<uint32_t>(t);
  return static_cast<TokenId>(hash >> 8);
}

std::vector<TokenId> Continue(std::vector<TokenId> tokens, int64_t max_tokens) {
  while (std::ssize(tokens) < max_tokens) tokens.push_back(NextToken(tokens));
  return tokens;
}

// A pool and a scheduler; the caches hold the token ids themselves.
class Harness {
 public:
  // n_snapshots: room for so many in the prefix cache.
  Harness(int max_seqs, int64_t n_blocks, int64_t max_model_len, int64_t max_batched,
          int64_t n_snapshots = 0)
      // A state at the last whole page can always be kept.
      : pool(SmallShape(std::max(max_batched, kBlockTokens)), max_seqs, n_blocks, max_model_len),
        scheduler(&pool, max_batched, max_seqs * int64_t{6}, n_snapshots * pool.ring_bytes()),
        max_batched_(max_batched),
        max_logits_(max_seqs * int64_t{6}),
        block_(max_batched, max_seqs, pool.max_blocks_per_seq(), 0) {}

  void Add(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens, bool scores = false) {
    scheduler.Add(id, prompt, max_tokens, scores);
    wanted[id] = max_tokens;
    if (scores) unscored[id] = {0, std::ssize(prompt)};
  }

  int64_t free_blocks() const { return pool.free_blocks() + pool.n_idle_cached(); }

  StepRecord Compute() {
    StepRecord step = scheduler.Next(limit);
    int64_t n_rows = 0, n_logits = 0;
    emitted_.clear();
    std::set<SeqSlot> slots;
    std::vector<SeqRows> seqs;
    for (const ScheduledRows& rows : step) {
      EXPECT_TRUE(slots.insert(rows.slot).second);
      EXPECT_GT(rows.count, 0);
      EXPECT_EQ(rows.first, pool.length(rows.slot));
      n_rows += rows.count;
      n_logits += rows.n_logits;
      CheckLogits(rows);
      const std::span<const TokenId> tokens = scheduler.tokens_and_drafts(rows.id);
      seqs.push_back(
          {rows.slot, tokens.first(static_cast<size_t>(rows.first + rows.count)), rows.first, 1});
    }
    EXPECT_LE(n_rows, max_batched_);
    EXPECT_LE(n_logits, max_logits_);
    if (step.empty()) return step;
    WriteCaches(seqs);
    for (const ScheduledRows& rows : step) {
      const std::vector<TokenId> cache = ReadCache(rows.slot, rows.first + rows.count);
      const size_t n_known = scheduler.tokens(rows.id).size();
      EXPECT_EQ(rows.samples, cache.size() - static_cast<size_t>(rows.n_drafts) == n_known);
      EXPECT_LE(std::ssize(cache), wanted[rows.id] - 1) << "rows beyond the end of the answer";
      if (rows.samples) emitted_.push_back(Verify(cache, rows.n_drafts));
    }
    rows_computed += n_rows;
    return step;
  }

  void Commit(const StepRecord& step) {
    scheduler.Commit(step, emitted_);
    for (const ScheduledRows& rows : step) {
      if (!wanted.contains(rows.id)) continue;  // cancelled
      const std::span<const TokenId> known = scheduler.tokens(rows.id);
      const std::vector<TokenId> tokens(known.begin(), known.end());
      if (drafting != nullptr && rows.samples) SetDrafts(rows.id, tokens);
      if (std::ssize(tokens) < wanted[rows.id]) continue;
      done[rows.id] = tokens;
      if (unscored.contains(rows.id)) {
        EXPECT_EQ(unscored[rows.id].first, unscored[rows.id].second) << "rows of its prompt";
      }
      tokens_shared += scheduler.n_cached(rows.id);
      scheduler.Finish(rows.id);
      wanted.erase(rows.id);
    }
  }

  void Cancel(RequestId id) {
    scheduler.Cancel(id);
    wanted.erase(id);
  }

  // Fails instead of running for ever.
  void RunAll() {
    for (int step = 0; step < 100000; ++step) {
      const StepRecord record = Compute();
      if (record.empty()) return;
      Commit(record);
    }
    FAIL() << "does not finish";
  }

  KvPool pool;
  Scheduler scheduler;
  std::map<RequestId, int64_t> wanted;  // tokens still to come up to
  std::map<RequestId, std::vector<TokenId>> done;
  // Of those that score: the next row of the prompt whose logits were not given, and their number.
  std::map<RequestId, std::pair<int64_t, int64_t>> unscored;
  ChunkLimit limit;
  int64_t rows_computed = 0, drafts_accepted = 0, tokens_shared = 0;
  std::mt19937* drafting =
      nullptr;  // proposes up to 5 drafts after every token, some of them right

 private:
  // Those of the newest token and of drafts; of prompts that score each row's once, in order.
  void CheckLogits(const ScheduledRows& rows) {
    const auto scores = unscored.find(rows.id);
    if (scores == unscored.end() || scores->second.first == scores->second.second) {
      EXPECT_EQ(rows.n_logits, rows.samples ? 1 + rows.n_drafts : 0);
      return;
    }
    auto& [next, n_prompt] = scores->second;
    EXPECT_LE(rows.first, next);
    EXPECT_EQ(rows.n_drafts, 0);
    EXPECT_EQ(rows.n_logits, std::max<int64_t>(rows.first + rows.count - next, 0));
    next = std::max(next, rows.first + rows.count);
    EXPECT_LE(next, n_prompt);
  }

  void WriteCaches(std::span<const SeqRows> seqs) {
    const StepInputs& in = *block_.inputs();
    pool.FillInputs(seqs, block_.inputs());
    const auto write = [](uint8_t* rows, int64_t row, TokenId id) {
      std::memcpy(rows + row * 4, &id, 4);
    };
    for (int32_t r = 0; r < in.n_rows; ++r) {
      write(pool.window_rows(0), in.window_slots[r], in.ids[r]);
      write(pool.compressed_rows(0), in.group_slots[1][r], in.ids[r]);
    }
  }

  // The first n tokens of a slot, as its blocks have them; the window has to agree.
  std::vector<TokenId> ReadCache(SeqSlot slot, int64_t n) {
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    const auto read = [](const uint8_t* rows, int64_t row) {
      TokenId id;
      std::memcpy(&id, rows + row * 4, 4);
      return id;
    };
    for (int64_t p = 0; p < n; ++p) {
      const int64_t block = pool.blocks(slot)[static_cast<size_t>(p / kBlockTokens)];
      tokens[static_cast<size_t>(p)] =
          read(pool.compressed_rows(0), block * kBlockTokens + p % kBlockTokens);
    }
    const int64_t ring = pool.shape().ring();
    for (int64_t p = std::max<int64_t>(0, n - pool.shape().window); p < n; ++p) {
      EXPECT_EQ(read(pool.window_rows(0), slot * ring + p % ring), tokens[static_cast<size_t>(p)])
          << "slot " << slot << " position " << p;
    }
    return tokens;
  }

  // What follows the cached tokens, the last n_drafts of which are guesses.
  std::vector<TokenId> Verify(const std::vector<TokenId>& cache, int64_t n_drafts) {
    std::vector<TokenId> emitted, known(cache.begin(), cache.end() - n_drafts);
    for (int64_t r = 0;; ++r) {
      emitted.push_back(NextToken(known));
      if (r == n_drafts || cache[known.size()] != emitted.back()) return emitted;
      known.push_back(emitted.back());
      ++drafts_accepted;
    }
  }

  void SetDrafts(RequestId id, std::vector<TokenId> tokens) {
    std::vector<TokenId> drafts;
    for (int64_t n = (*drafting)() % 6; n > 0; --n) {
      tokens.push_back((*drafting)() % 4 == 0 ? -1 : NextToken(tokens));
      drafts.push_back(tokens.back());
    }
    scheduler.SetDrafts(id, drafts);
  }

  int64_t max_batched_, max_logits_;
  StepBlock block_;
  std::vector<std::vector<TokenId>> emitted_;
};

std::vector<TokenId> RandomPrompt(std::mt19937& random, int64_t length) {
  std::vector<TokenId> prompt;
  while (std::ssize(prompt) < length) prompt.push_back(static_cast<TokenId>(random() % 1000));
  return prompt;
}

TEST(SchedulerTest, AnswersComeFirstAndPromptsFillTheRest) {
  Harness h(4, 16, 256, 8);
  h.Add(1, {1, 2, 3}, 20);
  h.Add(2, std::vector<TokenId>(18, 7), 30);
  StepRecord step = h.Compute();
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[0].count, 3);
  EXPECT_TRUE(step[0].samples);
  EXPECT_EQ(step[1].count, 5);
  EXPECT_FALSE(step[1].samples);
  h.Commit(step);
  step = h.Compute();
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[0].count, 1);
  EXPECT_EQ(step[1].first, 5);
  EXPECT_EQ(step[1].count, 7);
  h.Commit(step);
  EXPECT_EQ(h.scheduler.n_computed(2), 12);
}

TEST(SchedulerTest, ASequenceThatCanNeverFitIsRefused) {
  Harness h(2, 3, 1024, 16);
  try {
    h.Add(1, std::vector<TokenId>(100, 1), 194);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "prompt and answer: expected at most 192 tokens (3 cache blocks, see "
                 "--num-kv-blocks), found 100 prompt tokens and an answer of up to 94");
  }
  h.Add(2, std::vector<TokenId>(100, 1), 193);  // the last token is never computed
  h.RunAll();
  EXPECT_EQ(h.done[2], Continue(std::vector<TokenId>(100, 1), 193));
}

TEST(SchedulerTest, TheYoungestGivesWayAndNothingIsLost) {
  Harness h(4, 6, 384, 32);
  for (RequestId id = 1; id <= 4; ++id) h.Add(id, std::vector<TokenId>(60, 10 * id), 260);
  h.RunAll();
  ASSERT_EQ(h.done.size(), 4u);
  for (RequestId id = 1; id <= 4; ++id)
    EXPECT_EQ(h.done[id], Continue(std::vector<TokenId>(60, 10 * id), 260));
  EXPECT_GT(h.scheduler.n_preemptions(), 0);
  EXPECT_EQ(h.pool.free_blocks(), 6);
}

TEST(SchedulerTest, FiftyMixedLengthsAllFinish) {
  std::mt19937 random(50);
  for (int round = 0; round < 20; ++round) {
    Harness h(8, 24, 512, 64);
    std::map<RequestId, std::vector<TokenId>> expected;
    for (RequestId id = 1; id <= 50; ++id) {
      const std::vector<TokenId> prompt = RandomPrompt(random, 1 + random() % 300);
      const int64_t max_tokens = std::ssize(prompt) + 1 + random() % 200;
      h.Add(id, prompt, max_tokens);
      expected[id] = Continue(prompt, max_tokens);
    }
    h.RunAll();
    EXPECT_EQ(h.done, expected);
    EXPECT_EQ(h.pool.free_blocks(), 24);
  }
}

// Random pools, arrivals, cancellations (also between Next and Commit), shared prefixes, drafts and
// prompts that score.
TEST(SchedulerTest, RandomTrafficKeepsEveryTokenAndEveryBlock) {
  int64_t n_cancelled = 0, n_preempted = 0, n_accepted = 0, n_shared = 0, n_scored = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    std::mt19937 random(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const int64_t n_blocks = 4 + random() % 8;
    const int64_t max_batched = 1 + random() % 40;
    const int max_seqs = 1 + static_cast<int>(random() % 6);
    Harness h(max_seqs, n_blocks, 256, max_batched, seed % 3 * 4);
    if (seed % 2 == 0) h.drafting = &random;
    if (seed % 5 < 2) {
      h.limit = [&](int64_t answer_rows, int64_t prompt_rows, int64_t most) {
        EXPECT_LE(1, std::min(prompt_rows, most));
        return static_cast<int64_t>(random() % 9) + (answer_rows == 0 ? 1 : 0);
      };
    }
    std::map<RequestId, std::vector<TokenId>> expected;
    const auto cancel_one = [&] {
      if (h.wanted.empty() || random() % 8 != 0) return;
      const RequestId id =
          std::next(h.wanted.begin(), static_cast<int>(random() % h.wanted.size()))->first;
      h.Cancel(id);
      expected.erase(id);
      ++n_cancelled;
    };
    RequestId id = 0;
    std::vector<TokenId> last_prompt;
    for (int i = 0; i < 400; ++i) {
      if (random() % 4 == 0) {
        std::vector<TokenId> prompt = RandomPrompt(random, 1 + random() % 100);
        if (!h.done.empty() && random() % 2 == 0) {  // goes on from an earlier sequence
          prompt = h.done.rbegin()->second;
          prompt.resize(std::min<size_t>(prompt.size(), 1 + random() % 150));
          prompt.push_back(3);
        }
        if (id > 0 && random() % 8 == 0) prompt = last_prompt;
        last_prompt = prompt;
        const int64_t max_tokens = std::min<int64_t>(std::ssize(prompt) + 1 + random() % 150, 256);
        h.Add(++id, prompt, max_tokens, seed % 4 == 1 && random() % 2 == 0);
        expected[id] = Continue(prompt, max_tokens);
      }
      const StepRecord step = h.Compute();
      cancel_one();
      h.Commit(step);
      cancel_one();
      EXPECT_LE(h.scheduler.n_running(), max_seqs);
    }
    h.RunAll();
    EXPECT_EQ(h.done, expected);
    n_preempted += h.scheduler.n_preemptions();
    EXPECT_EQ(h.free_blocks(), n_blocks);
    n_shared += h.tokens_shared;
    // One sequence that needs everything gets it.
    const int64_t all = std::min<int64_t>(256, n_blocks * kBlockTokens);
    h.Add(++id, RandomPrompt(random, all - 1), all);
    h.RunAll();
    EXPECT_EQ(h.done.size(), expected.size() + 1);
    n_accepted += h.drafts_accepted;
    n_scored += std::ssize(h.unscored);
  }
  EXPECT_GT(n_accepted, 10000);
  EXPECT_GT(n_cancelled, 1000);
  EXPECT_GT(n_preempted, 100);
  EXPECT_GT(n_shared, 5000);
  EXPECT_GT(n_scored, 500);
}

// Two prompts that score beside an answer with drafts: the older one gets all that is left, the
// other goes on, and a third that does not score is not held up.
TEST(SchedulerTest, PromptsThatScoreShareTheRoomForLogits) {
  std::mt19937 random(7);
  Harness h(4, 20, 512, 100, /*n_snapshots=*/8);
  h.Add(1, {1}, 50);
  h.Commit(h.Compute());
  const std::vector<TokenId> prompt = RandomPrompt(random, 130);
  h.Add(2, prompt, 140, /*scores=*/true);
  h.Add(3, prompt, 140, /*scores=*/true);
  h.Add(4, RandomPrompt(random, 60), 70);
  const StepRecord step = h.Compute();
  ASSERT_EQ(step.size(), 4u);
  EXPECT_EQ(step[1].count, 21) << "room for 24: one row answers, and others may each end a prompt";
  EXPECT_EQ(step[2].count, 1);
  EXPECT_EQ(step[3].count, 60);
  h.Commit(step);
  h.RunAll();
  EXPECT_EQ(h.done.at(3), h.done.at(2));
  // What is remembered of the prompt is of use to others, but not to one that scores.
  const int64_t rows = h.rows_computed;
  h.Add(5, prompt, 140, /*scores=*/true);
  h.Add(6, prompt, 140);
  h.RunAll();
  EXPECT_EQ(h.rows_computed - rows, 139 + 139 - 128);
}

// Two that compute the same tokens, as one of them scores: the pages of the first lie in front of
// one that the second uses, and give way all the same.
TEST(SchedulerTest, IdlePagesInFrontOfUsedOnesGiveWay) {
  std::mt19937 random(3);
  Harness h(2, 8, 512, 100, /*n_snapshots=*/8);
  std::vector<TokenId> prompt = RandomPrompt(random, 130);
  h.Add(1, prompt, 131, /*scores=*/true);
  while (prompt.size() < 200) prompt.push_back(5);
  h.Add(2, prompt, 256, /*scores=*/true);
  while (h.scheduler.n_computed(2) < 210) h.Commit(h.Compute());
  EXPECT_TRUE(h.done.contains(1));
  EXPECT_EQ(h.pool.n_idle_cached(), 2);
  EXPECT_EQ(h.pool.free_blocks(), 2);
  h.Add(3, RandomPrompt(random, 250), 256);
  h.RunAll();
  EXPECT_EQ(h.done.size(), 3u);
  EXPECT_EQ(h.free_blocks(), 8);
}

TEST(SchedulerTest, DraftsTakeNoRowFromYoungerAnswers) {
  Harness h(3, 12, 256, 8);
  for (RequestId id = 1; id <= 3; ++id) h.Add(id, {static_cast<TokenId>(id)}, 100);
  h.Commit(h.Compute());
  for (RequestId id = 1; id <= 3; ++id) {
    std::vector<TokenId> tokens(h.scheduler.tokens(id).begin(), h.scheduler.tokens(id).end());
    const std::vector<TokenId> all = Continue(tokens, std::ssize(tokens) + 5);
    h.scheduler.SetDrafts(id, std::span(all).last(5));
  }
  const StepRecord step = h.Compute();
  ASSERT_EQ(step.size(), 3u);
  EXPECT_EQ(step[0].count, 6);
  EXPECT_EQ(step[0].n_drafts, 5);
  EXPECT_EQ(step[1].count, 1);
  EXPECT_EQ(step[2].count, 1);
  h.Commit(step);
  EXPECT_EQ(h.scheduler.tokens(1).size(), 8u) << "five drafts and one more";
  EXPECT_EQ(h.scheduler.n_computed(1), 7);
  EXPECT_EQ(h.scheduler.tokens_and_drafts(2).size(), 3u) << "drafts are for one step";
}

// Rows of prompt `id` in a step.
int64_t RowsOf(const StepRecord& step, RequestId id) {
  const auto rows = std::ranges::find(step, id, &ScheduledRows::id);
  return rows == step.end() ? 0 : rows->count;
}

TEST(SchedulerTest, ShortPromptsDoNotWaitForLongOnes) {
  Harness h(8, 64, 2048, 32);
  h.Add(1, std::vector<TokenId>(1500, 1), 1510);
  h.Commit(h.Compute());
  h.Add(2, std::vector<TokenId>(1200, 2), 1210);
  h.Add(3, std::vector<TokenId>(12, 3), 30);
  h.Add(4, std::vector<TokenId>(40, 4), 50);
  StepRecord step = h.Compute();
  EXPECT_EQ(RowsOf(step, 3), 12);
  EXPECT_EQ(RowsOf(step, 4), 4);
  EXPECT_EQ(RowsOf(step, 2), 0) << "it is not much shorter than the oldest";
  EXPECT_EQ(RowsOf(step, 1), 16);
  h.Commit(step);
  step = h.Compute();
  EXPECT_EQ(step[0].id, 3) << "rows of answers come first";
  EXPECT_TRUE(step[0].samples);
  EXPECT_EQ(RowsOf(step, 4), 15);
  EXPECT_EQ(RowsOf(step, 1), 16);
  h.Commit(step);
  h.RunAll();
  EXPECT_EQ(h.done.size(), 4u);
}

// Short ones keep arriving; the long ones have half of every chunk, so they end in at most twice
// the steps they need alone.
TEST(SchedulerTest, LongPromptsAreNotStarvedByShortOnes) {
  Harness h(8, 64, 2048, 32);
  h.Add(1, std::vector<TokenId>(960, 1), 961);
  int n_steps = 0;
  for (RequestId id = 2; !h.done.contains(1); ++n_steps) {
    for (int i = 0; i < 3; ++i, ++id) {
      h.Add(id, std::vector<TokenId>(20, static_cast<TokenId>(id)), 21);
    }
    h.Commit(h.Compute());
  }
  EXPECT_LE(n_steps, 2 * 960 / 32 + 2);
  h.RunAll();
}

TEST(SchedulerTest, EqualPromptsAreComputedOnceAlsoWhenTheyComeTogether) {
  Harness h(8, 64, 1024, 64, 8);
  for (RequestId id = 1; id <= 5; ++id) h.Add(id, std::vector<TokenId>(300, 4), 301);
  h.RunAll();
  EXPECT_EQ(h.rows_computed, 300 + 4 * (300 - 256));
}

TEST(SchedulerTest, ALimitHoldsForPromptsOnly) {
  Harness h(4, 64, 1024, 64);
  h.limit = [](int64_t answer_rows, int64_t prompt_rows, int64_t most) {
    EXPECT_GT(prompt_rows, 0);
    EXPECT_EQ(most, 64 - answer_rows);
    return answer_rows == 0 ? most : answer_rows % 3 == 1 ? 0 : 5;
  };
  h.Add(1, {1, 2, 3}, 40);
  h.Commit(h.Compute());
  h.Add(2, std::vector<TokenId>(200, 2), 210);
  StepRecord step = h.Compute();
  ASSERT_EQ(step.size(), 1u) << "no chunk beside one answer";
  h.Commit(step);
  h.Add(3, {4}, 40);
  h.RunAll();
  EXPECT_EQ(h.done.size(), 3u);
  EXPECT_EQ(h.done[2], Continue(std::vector<TokenId>(200, 2), 210));
}

// Two sequences fill the pool; the younger one gives way and later goes on from what is left of it.
TEST(SchedulerTest, WhatIsPutBackIsNotComputedAgain) {
  Harness h(2, 8, 512, 64, 8);
  for (RequestId id = 1; id <= 2; ++id) h.Add(id, std::vector<TokenId>(200, 10 * id), 310);
  h.RunAll();
  EXPECT_EQ(h.scheduler.n_preemptions(), 1);
  for (RequestId id = 1; id <= 2; ++id)
    EXPECT_EQ(h.done[id], Continue(std::vector<TokenId>(200, 10 * id), 310));
  EXPECT_LE(h.rows_computed, 2 * 309 + 2 * kBlockTokens) << "of 309 + 309 + 256";
  EXPECT_EQ(h.tokens_shared, 0) << "its own tokens are not those of others";
  EXPECT_EQ(h.free_blocks(), 8);
}

// Who gave way goes on before those who have not begun.
TEST(SchedulerTest, WhoGaveWayIsTheNext) {
  Harness h(2, 8, 512, 64);
  for (RequestId id = 1; id <= 2; ++id) h.Add(id, std::vector<TokenId>(200, 10 * id), 310);
  h.Add(3, {1, 2, 3}, 20);
  while (h.scheduler.n_preemptions() == 0) h.Commit(h.Compute());
  while (h.wanted.contains(3)) {
    if (h.scheduler.n_computed(3) > 0) {
      EXPECT_TRUE(!h.wanted.contains(2) || h.scheduler.n_computed(2) > 0);
    }
    h.Commit(h.Compute());
  }
  h.RunAll();
}

// What waits for blocks costs nothing, and does not drive out what others may use.
TEST(SchedulerTest, WaitingEvictsNothing) {
  Harness h(3, 8, 512, 64, 8);
  h.Add(1, std::vector<TokenId>(130, 1), 131);
  h.RunAll();
  EXPECT_EQ(h.pool.n_idle_cached(), 2);
  h.Add(2, std::vector<TokenId>(200, 2), 250);
  h.Commit(h.Compute());
  h.Add(3, std::vector<TokenId>(400, 3), 410);
  for (int i = 0; i < 30; ++i) h.Commit(h.Compute());
  EXPECT_EQ(h.scheduler.n_waiting(), 1);
  EXPECT_EQ(h.pool.n_idle_cached(), 2);
  h.RunAll();
  EXPECT_EQ(h.done[3], Continue(std::vector<TokenId>(400, 3), 410));
}

TEST(SchedulerTest, CancelFreesSlotAndBlocksAtOnce) {
  Harness h(2, 8, 512, 16);
  h.Add(1, std::vector<TokenId>(300, 5), 400);
  h.Commit(h.Compute());
  EXPECT_EQ(h.pool.free_blocks(), 3);
  const StepRecord step = h.Compute();  // in the middle of a long prompt
  h.Cancel(1);
  EXPECT_EQ(h.pool.free_blocks(), 8);
  h.Commit(step);
  EXPECT_EQ(h.scheduler.n_running() + h.scheduler.n_waiting(), 0);
  h.Cancel(1);  // again: nothing
  h.Add(2, {9, 9}, 10);
  h.RunAll();
  EXPECT_EQ(h.done[2], Continue({9, 9}, 10));
}

TEST(SchedulerTest, PrefixesAreComputedOnce) {
  Harness h(2, 16, 512, 32, 8);
  const std::vector<TokenId> prompt(200, 4);
  h.Add(1, prompt, 300);
  h.RunAll();
  EXPECT_EQ(h.rows_computed, 299);

  h.Add(2, prompt, 300);  // the same again: whole pages of the prompt but for its last token
  h.RunAll();
  EXPECT_EQ(h.done[2], h.done[1]);
  EXPECT_EQ(h.rows_computed, 299 + 299 - 192);

  std::vector<TokenId> longer = h.done[1];  // the next turn: whole pages of prompt and answer
  longer.insert(longer.end(), {8, 9});
  h.Add(3, longer, 310);
  h.RunAll();
  EXPECT_EQ(h.done[3], Continue(longer, 310));
  EXPECT_EQ(h.rows_computed, 299 + 299 - 192 + 309 - 256);
}

// Nobody ended where they part: the second one leaves a state there, from the third on all share
// it.
TEST(SchedulerTest, ACommonBeginningIsSharedFromTheThirdOn) {
  Harness h(1, 32, 512, 32, 8);
  std::mt19937 random(3);
  const std::vector<TokenId> system = RandomPrompt(random, 150);
  std::vector<int64_t> rows;
  for (RequestId id = 1; id <= 4; ++id) {
    std::vector<TokenId> prompt = system;
    for (const TokenId token : RandomPrompt(random, 100)) prompt.push_back(token);
    const int64_t before = h.rows_computed;
    h.Add(id, prompt, 260);
    h.RunAll();
    EXPECT_EQ(h.done[id], Continue(prompt, 260));
    rows.push_back(h.rows_computed - before);
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{259, 259, 259 - 128, 259 - 128}));
}

TEST(SchedulerTest, PrefixesAreSharedByThoseThatRun) {
  Harness h(2, 8, 256, 200, 8);
  const std::vector<TokenId> prompt(130, 4);
  h.Add(1, prompt, 200);
  h.Commit(h.Compute());
  const int64_t free = h.pool.free_blocks();
  h.Add(2, prompt, 200);
  h.Commit(h.Compute());
  EXPECT_EQ(h.scheduler.n_cached(2), 128);
  EXPECT_EQ(h.pool.free_blocks(), free - 1) << "two blocks are shared";
  h.Cancel(1);
  h.RunAll();
  EXPECT_EQ(h.done[2], Continue(prompt, 200));
}

TEST(SchedulerTest, PrefixesGiveWay) {
  Harness h(1, 4, 256, 64, 8);
  h.Add(1, std::vector<TokenId>(200, 4), 210);
  h.RunAll();
  EXPECT_EQ(h.pool.n_idle_cached(), 3);
  h.Add(2, std::vector<TokenId>(250, 5), 256);
  h.RunAll();
  EXPECT_EQ(h.done[2], Continue(std::vector<TokenId>(250, 5), 256));
  EXPECT_EQ(h.free_blocks(), 4);
}

TEST(SchedulerTest, WithoutPrefixCacheNothingIsShared) {
  Harness h(1, 8, 256, 64);
  for (RequestId id = 1; id <= 2; ++id) {
    h.Add(id, std::vector<TokenId>(200, 4), 210);
    h.RunAll();
  }
  EXPECT_EQ(h.rows_computed, 2 * 209);
  EXPECT_EQ(h.pool.free_blocks(), 8);
}

}  // namespace
}  // namespace deepinfer
