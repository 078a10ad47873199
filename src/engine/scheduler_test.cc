// The scheduler against a fake executor whose next token depends on every token of the sequence, as
// its caches hold them.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// A pool, a scheduler and what the caches of each slot would hold.
class Harness {
 public:
  Harness(int max_seqs, int64_t n_blocks, int64_t max_model_len, int64_t max_batched)
      : pool(SmallShape(max_batched), max_seqs, n_blocks, max_model_len),
        scheduler(&pool, max_batched),
        max_batched_(max_batched),
        caches_(static_cast<size_t>(max_seqs)) {}

  void Add(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens, bool keep = false) {
    scheduler.Add(id, prompt, max_tokens, keep);
    wanted[id] = max_tokens;
  }

  StepRecord Compute() {
    StepRecord step = scheduler.Next();
    int64_t n_rows = 0;
    emitted_.clear();
    std::set<SeqSlot> slots;
    for (const ScheduledRows& rows : step) {
      EXPECT_TRUE(slots.insert(rows.slot).second);
      EXPECT_GT(rows.count, 0);
      EXPECT_EQ(rows.first, pool.length(rows.slot));
      n_rows += rows.count;
      std::vector<TokenId>& cache = caches_[static_cast<size_t>(rows.slot)];
      EXPECT_LE(static_cast<size_t>(rows.first), cache.size()) << "rows are missing";
      cache.resize(static_cast<size_t>(rows.first));
      const std::span<const TokenId> tokens = scheduler.tokens_and_drafts(rows.id);
      cache.insert(cache.end(), tokens.begin() + rows.first,
                   tokens.begin() + rows.first + rows.count);
      const size_t n_known = scheduler.tokens(rows.id).size();
      EXPECT_EQ(rows.samples, cache.size() - static_cast<size_t>(rows.n_drafts) == n_known);
      EXPECT_LE(std::ssize(cache), wanted[rows.id] - 1) << "rows beyond the end of the answer";
      if (rows.samples) emitted_.push_back(Verify(cache, rows.n_drafts));
    }
    EXPECT_LE(n_rows, max_batched_);
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
  int64_t rows_computed = 0, drafts_accepted = 0;
  std::mt19937* drafting =
      nullptr;  // proposes up to 5 drafts after every token, some of them right

 private:
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

  int64_t max_batched_;
  std::vector<std::vector<TokenId>> caches_;
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

// Random pools, arrivals, cancellations (also between Next and Commit), kept caches and drafts.
TEST(SchedulerTest, RandomTrafficKeepsEveryTokenAndEveryBlock) {
  int64_t n_cancelled = 0, n_preempted = 0, n_accepted = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    std::mt19937 random(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const int64_t n_blocks = 4 + random() % 8;
    const int64_t max_batched = 1 + random() % 40;
    const int max_seqs = 1 + static_cast<int>(random() % 6);
    Harness h(max_seqs, n_blocks, 256, max_batched);
    if (seed % 2 == 0) h.drafting = &random;
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
    for (int i = 0; i < 400; ++i) {
      if (random() % 4 == 0) {
        std::vector<TokenId> prompt = RandomPrompt(random, 1 + random() % 100);
        if (!h.done.empty() && random() % 2 == 0) {  // goes on from an earlier sequence
          prompt = h.done.rbegin()->second;
          prompt.resize(std::min<size_t>(prompt.size(), 1 + random() % 150));
          prompt.push_back(3);
        }
        const int64_t max_tokens = std::min<int64_t>(std::ssize(prompt) + 1 + random() % 150, 256);
        h.Add(++id, prompt, max_tokens, random() % 2 == 0);
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
    // Kept caches may remain; one sequence that needs everything gets it.
    const int64_t all = std::min<int64_t>(256, n_blocks * kBlockTokens);
    h.Add(++id, RandomPrompt(random, all - 1), all);
    h.RunAll();
    EXPECT_EQ(h.done.size(), expected.size() + 1);
    n_accepted += h.drafts_accepted;
  }
  EXPECT_GT(n_accepted, 10000);
  EXPECT_GT(n_cancelled, 1000);
  EXPECT_GT(n_preempted, 100);
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

TEST(SchedulerTest, KeptCachesSpareTheCommonRows) {
  Harness h(2, 8, 512, 64);
  const std::vector<TokenId> prompt(100, 4);
  h.Add(1, prompt, 120, true);
  h.RunAll();
  EXPECT_EQ(h.rows_computed, 119);

  std::vector<TokenId> longer = h.done[1];
  longer.insert(longer.end(), {8, 9});
  h.Add(2, longer, 130, true);
  h.RunAll();
  EXPECT_EQ(h.done[2], Continue(longer, 130));
  EXPECT_EQ(h.rows_computed, 129);  // 119 rows were there; the last token is not computed

  // Another continuation: going back 20 tokens is possible, 64 and more is not.
  std::vector<TokenId> other(h.done[2].begin(), h.done[2].begin() + 110);
  other.push_back(77);
  h.Add(3, other, 112, true);
  h.RunAll();
  EXPECT_EQ(h.done[3], Continue(other, 112));
  EXPECT_EQ(h.rows_computed, 130);
  std::vector<TokenId> early(prompt.begin(), prompt.begin() + 40);
  h.Add(4, early, 41);
  h.RunAll();
  EXPECT_EQ(h.rows_computed, 170);
}

TEST(SchedulerTest, KeptCachesGiveWay) {
  Harness h(1, 4, 256, 64);
  h.Add(1, std::vector<TokenId>(200, 4), 210, true);
  h.RunAll();
  h.Add(2, std::vector<TokenId>(250, 5), 256);
  h.RunAll();
  EXPECT_EQ(h.done[2], Continue(std::vector<TokenId>(250, 5), 256));
  EXPECT_EQ(h.pool.free_blocks(), 4);
}

}  // namespace
}  // namespace deepinfer
