// The policy on a simulated machine whose steps take what is planted there.
#include "engine/chunk_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace deepinfer {
namespace {

using Cost = double (*)(int64_t rows);

// Weights of experts that rows share, then arithmetic.
double Moe(int64_t rows) {
  const double n = static_cast<double>(rows);
  return 0.4 + 0.6 * 64 * (1 - std::pow(1 - 1 / 64.0, n)) + 0.02 * n;
}
double Linear(int64_t rows) { return static_cast<double>(rows); }
double Flat(int64_t rows) { return 1 + 0.001 * static_cast<double>(rows); }

struct Machine {
  Cost real, believed;
  double noise;
  double tokens = 1;  // of an answer in a step, 1 to 2 * tokens - 1
  int64_t answers = 1;
};

// Times of the steps of an answer beside a prompt without end, from the first chunk on.
struct Trace {
  std::vector<double> seconds;
  std::vector<int64_t> prompt_rows, tokens;
  double plain = 0;  // seconds of a token without prompts

  // The time of a token over `n` tokens, from step `from` on; 0: there are no more as many.
  double PerToken(size_t from, int64_t n) const {
    double time = 0;
    int64_t sum = 0;
    for (size_t i = from; i < seconds.size(); ++i) {
      time += seconds[i];
      sum += tokens[i];
      if (sum >= n) return time / static_cast<double>(sum);
    }
    return 0;
  }
};

Trace Simulate(const Machine& m, double slowdown, int n_steps) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  ChunkPolicy policy(slowdown, m.believed);
  Trace trace;
  trace.plain = 0.01 * m.real(m.answers) / m.tokens;
  const auto step = [&](int64_t answers, int64_t prompt) {
    const double seconds =
        0.01 * m.real(answers + prompt) * std::max(0.5, 1 + m.noise * normal(random));
    const auto most = static_cast<uint32_t>(std::lround(2 * m.tokens - 1));
    const int64_t tokens = 1 + random() % most;
    policy.Stepped(answers, prompt, static_cast<double>(tokens), seconds);
    return std::pair(seconds, tokens);
  };
  step(0, policy.Rows(0, 40, 512));  // its own prompt
  for (int i = 0; i < 30; ++i) step(m.answers, 0);
  for (int i = 0; i < n_steps; ++i) {
    const int64_t rows = policy.Rows(m.answers, 100000, 512);
    const auto [seconds, tokens] = step(m.answers, rows);
    trace.seconds.push_back(seconds);
    trace.prompt_rows.push_back(rows);
    trace.tokens.push_back(tokens);
  }
  return trace;
}

constexpr Machine kMachines[] = {{Moe, Moe, 0.03},        {Moe, Linear, 0.03},
                                 {Moe, Flat, 0.03},       {Linear, Moe, 0.03},
                                 {Linear, Flat, 0.03},    {Moe, Moe, 0.03, 1, 8},
                                 {Moe, Flat, 0.03, 1, 8}, {Linear, Linear, 0.03, 1, 3}};

TEST(ChunkPolicyTest, TwentyTokensTakeTheSetRatioWhateverWasBelieved) {
  for (const Machine& m : kMachines) {
    for (const double slowdown : {1.5, 2., 3.}) {
      SCOPED_TRACE(testing::Message() << "machine " << &m - kMachines << " slowdown " << slowdown);
      const Trace trace = Simulate(m, slowdown, 600);
      // The first chunk finds out what rows cost.
      for (size_t i = 0; i < 500; ++i) {
        EXPECT_LT(trace.PerToken(i, 20) / trace.plain, slowdown * (i == 0 ? 2 : 1.15))
            << "step " << i;
      }
      const double all = trace.PerToken(100, 420) / trace.plain;
      EXPECT_GT(all, slowdown * 0.85);
      EXPECT_LT(all, slowdown * 1.05);
    }
  }
}

TEST(ChunkPolicyTest, AStepOfSeveralTokensCountsForThem) {
  for (const double slowdown : {1.5, 2., 3.}) {
    const Trace trace = Simulate({Moe, Moe, 0.03, 3}, slowdown, 600);
    const double all = trace.PerToken(100, 1400) / trace.plain;
    EXPECT_GT(all, slowdown * 0.85) << slowdown;
    EXPECT_LT(all, slowdown * 1.15) << slowdown;
  }
}

// But for the first chunks, which find out what rows cost.
TEST(ChunkPolicyTest, NoStepIsMuchLongerThanAPlainOne) {
  for (const Machine& m : kMachines) {
    for (const double slowdown : {1.1, 1.5, 1.7, 2., 3., 9.}) {
      SCOPED_TRACE(testing::Message() << "machine " << &m - kMachines << " slowdown " << slowdown);
      const Trace trace = Simulate(m, slowdown, 600);
      const double plain = trace.plain * m.tokens;
      const double most = 1 + std::max(5., slowdown - 1);
      EXPECT_LT(*std::max_element(trace.seconds.begin() + 100, trace.seconds.end()) / plain,
                most * 1.2);
    }
  }
}

// Many rows in one step read the same weights: so as few chunks as that allows.
TEST(ChunkPolicyTest, ChunksAreAsLargeAsTheyMayBe) {
  for (const auto& [slowdown, period] : {std::pair(1.25, 20), {1.5, 10}, {2., 5}, {3., 2}}) {
    const Trace trace = Simulate({Moe, Moe, 0}, slowdown, 300);
    const auto n = std::ranges::count_if(trace.prompt_rows, [](int64_t rows) { return rows > 0; });
    EXPECT_NEAR(static_cast<double>(n), 300. / period, 3) << slowdown;
  }
}

TEST(ChunkPolicyTest, ASlowerMachineIsFollowed) {
  ChunkPolicy policy(2, Moe);
  double machine = 1, time = 0;
  const auto step = [&](int64_t answers, int64_t prompt) {
    policy.Stepped(answers, prompt, 1, machine * Moe(answers + prompt));
    return machine * Moe(answers + prompt);
  };
  step(0, 512);
  for (int i = 0; i < 200; ++i) {
    if (i == 50) machine = 3;
    const double seconds = step(1, policy.Rows(1, 5000, 512));
    if (i >= 120) time += seconds;  // four periods
  }
  EXPECT_NEAR(time / 80 / (3 * Moe(1)), 2, 0.2);
}

TEST(ChunkPolicyTest, WithoutAnswersOrLimitChunksAreWhole) {
  ChunkPolicy policy(2, Moe);
  EXPECT_EQ(policy.Rows(0, 5000, 512), 512);
  policy.Stepped(0, 512, 1, 1);
  EXPECT_EQ(policy.Rows(0, 5000, 512), 512);
  ChunkPolicy any(0, Moe);
  EXPECT_EQ(any.Rows(8, 5000, 512), 512);
  any.Stepped(8, 512, 1, 100);
  EXPECT_EQ(any.Rows(8, 5000, 512), 512);
}

// What suffices for all that is asked for is spent at once.
TEST(ChunkPolicyTest, ShortPromptsDoNotWaitForMoreCredit) {
  ChunkPolicy policy(2, Moe);
  policy.Stepped(0, 100, 1, Moe(100));
  for (int i = 0; i < 5; ++i) policy.Stepped(1, 0, 1, Moe(1));
  EXPECT_EQ(policy.Rows(1, 5, 512), 5);
  policy.Stepped(1, 5, 1, Moe(6));
  EXPECT_EQ(policy.Rows(1, 3, 512), 3);
  policy.Stepped(1, 3, 1, Moe(4));
  EXPECT_EQ(policy.Rows(1, 5000, 512), 0);
}

// Even when one row is dearer than all the credit.
TEST(ChunkPolicyTest, PromptsAlwaysGoOn) {
  ChunkPolicy policy(1.05, Linear);
  policy.Stepped(0, 1, 1, 1);
  int64_t rows = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t n = policy.Rows(1, 100, 512);
    policy.Stepped(1, n, 1, n > 0 ? 10 : 1);
    rows += n;
  }
  EXPECT_GT(rows, 5);
}

}  // namespace
}  // namespace deepinfer
