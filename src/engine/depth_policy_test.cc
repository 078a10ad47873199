// The policy against simulated machines: what a step costs and which drafts are right is known.
#include "engine/depth_policy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <string>

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 5;

float Logit(double p) { return static_cast<float>(std::log(p / (1 - p))); }

// One sequence for `steps` steps. Every draft is right with the chance `right`, which the
// confidence head states as `stated`; a row more costs `per_row` of a step of one row, a draft
// `per_draft`.
struct Machine {
  double right, stated, per_row, per_draft;
  double StepSeconds(int64_t rows) const { return 1 + per_row * static_cast<double>(rows - 1); }
};

struct Outcome {
  double tokens = 0, seconds = 0;
  int64_t drafts = 0;
  std::vector<int64_t> depths = std::vector<int64_t>(kBlock + 1);
  double rate() const { return tokens / seconds; }
};

// The first three steps take `cold` times as long.
Outcome Simulate(const Machine& m, int64_t steps, double guess_per_row = 0.4, double cold = 1) {
  std::mt19937 random(7);
  std::bernoulli_distribution right(m.right);
  DepthPolicy policy(
      kBlock,
      {[&](int64_t rows) { return 1 + guess_per_row * static_cast<double>(rows - 1); }, 0.1});
  const std::vector<float> confidence(kBlock, Logit(m.stated));
  Outcome out;
  for (int64_t i = 0; i < steps; ++i) {
    int64_t depth = 0;
    const bool drafts = policy.Drafts();
    if (drafts) policy.Choose(confidence, kBlock, {&depth, 1});
    int64_t accepted = 0;
    while (accepted < depth && right(random)) ++accepted;
    const double step_s = m.StepSeconds(1 + depth) * (i < 3 ? cold : 1);
    const double draft_s = drafts ? m.per_draft : 0;
    policy.Verified(confidence, depth, accepted);
    policy.Stepped(1, 1 + depth, step_s, draft_s);
    out.tokens += static_cast<double>(1 + accepted);
    out.seconds += step_s + draft_s;
    out.drafts += drafts;
    ++out.depths[static_cast<size_t>(depth)];
  }
  return out;
}

// Tokens per second at a fixed depth.
double FixedRate(const Machine& m, int64_t depth) {
  double tokens = 1;
  for (int64_t i = 1; i <= depth; ++i) tokens += std::pow(m.right, static_cast<double>(i));
  return tokens / (m.StepSeconds(1 + depth) + m.per_draft);
}

double BestFixedRate(const Machine& m) {
  double best = 1;  // no drafts
  for (int64_t depth = 1; depth <= kBlock; ++depth) best = std::max(best, FixedRate(m, depth));
  return best;
}

TEST(DepthPolicy, ComesNearTheBestFixedDepthOnEveryMachine) {
  for (double right : {0.02, 0.3, 0.6, 0.8, 0.95}) {
    for (double per_row : {0.02, 0.2, 0.4, 0.7, 1.0}) {
      for (double per_draft : {0.02, 0.1, 0.3}) {
        const Machine m{right, right, per_row, per_draft};
        const Outcome out = Simulate(m, 20000);
        EXPECT_GT(out.rate(), 0.93 * BestFixedRate(m))
            << "right " << right << " row " << per_row << " draft " << per_draft << " best "
            << BestFixedRate(m);
        EXPECT_GT(out.rate(), 0.99) << "slower than without drafts: right " << right << " row "
                                    << per_row << " draft " << per_draft;
      }
    }
  }
}

TEST(DepthPolicy, CorrectsAConfidenceHeadThatIsWrong) {
  for (double stated : {0.1, 0.5, 0.97}) {
    const Machine good{0.8, stated, 0.2, 0.05};
    EXPECT_GT(Simulate(good, 20000).rate(), 0.93 * BestFixedRate(good)) << stated;
    const Machine bad{0.05, stated, 0.4, 0.05};
    EXPECT_GT(Simulate(bad, 20000).rate(), 0.985) << stated;
  }
}

TEST(DepthPolicy, LearnsWhatRowsCost) {
  const Machine cheap{0.9, 0.9, 0.05, 0.05};
  EXPECT_GT(Simulate(cheap, 20000, 1.5).rate(), 0.93 * BestFixedRate(cheap))
      << "believed expensive";
  const Machine dear{0.6, 0.6, 1.2, 0.05};
  EXPECT_GT(Simulate(dear, 20000, 0.05).rate(), 0.98) << "believed cheap";
}

// All that is known of plain steps before the first draft is wrong; drafts that do not pay are
// found out by plain steps in between.
TEST(DepthPolicy, ForgetsAColdStart) {
  for (double per_row : {0.1, 0.17, 0.3}) {
    const Machine m{0.55, 0.55, per_row, 0.5};
    EXPECT_GT(Simulate(m, 1000, 0.4, 1.5).rate(), 0.97 * BestFixedRate(m)) << per_row;
  }
}

TEST(DepthPolicy, PausesLongerAndLonger) {
  const Outcome out = Simulate({0.02, 0.5, 0.5, 0.3}, 20000);
  EXPECT_LT(out.drafts, 150);
  EXPECT_GT(out.drafts, 16) << "it is tried again";
  DepthPolicy policy(kBlock, {[](int64_t) { return 1.0; }, 0.1});
  EXPECT_FALSE(policy.Drafts());
  const int64_t steps = policy.pause();
  for (int64_t i = 0; i < steps; ++i) policy.Stepped(1, 1, 1, 0);
  EXPECT_TRUE(policy.Drafts()) << "after " << steps;
}

// Steps until the policy knows a plain step and has had its first trial.
void WarmUp(DepthPolicy* policy, int64_t n_seqs, double step_s) {
  const std::vector<float> confidence(static_cast<size_t>(n_seqs * kBlock));
  std::vector<int64_t> depths(static_cast<size_t>(n_seqs));
  policy->Choose(confidence, kBlock, depths);
  for (int i = 0; i < 8; ++i) policy->Stepped(n_seqs, n_seqs, step_s, 1e-3);
}

// ---- the released model, by its bytes ----

// Gigabytes: what a step reads besides experts, an expert of every layer, a draft; and what a row
// takes beside reading, in parts of a plain step.
struct Model {
  double dense, expert, draft, per_row = 0;
  double Cost(double different_experts) const { return dense + expert * different_experts; }
};
constexpr Model kReleased{8.08, 0.752, 3.05};

// A process in which every draft has a chance of its own, known to the confidence head, such that
// whole blocks bring `tau` tokens a step in the mean; rows share the part `overlap` of their
// experts with the next, while the policy believes in uniform routing. Steps vary by 3 %, and now
// and then the machine becomes faster or slower.
struct Workload {
  double tau, overlap;
  Model model = kReleased;
  std::optional<Model> believed = {};  // when it is another

  double MeanChance() const {
    double low = 0, high = 1;
    for (int i = 0; i < 50; ++i) {
      const double p = (low + high) / 2;
      (Tokens(p, kBlock) < tau ? low : high) = p;
    }
    return low;
  }
  static double Tokens(double p, int64_t depth) {
    double sum = 1;
    for (int64_t i = 1; i <= depth; ++i) sum += std::pow(p, static_cast<double>(i));
    return sum;
  }
  double StepCost(int64_t rows) const {
    const auto more = static_cast<double>(rows - 1);
    return model.Cost(6 * (1 + more * (1 - overlap))) + model.per_row * more * model.Cost(6);
  }
  // Over plain decoding, of the best fixed depth, none included.
  double BestGain() const {
    double best = 1;
    for (int64_t depth = 1; depth <= kBlock; ++depth) {
      best = std::max(
          best, Tokens(MeanChance(), depth) * StepCost(1) / (StepCost(1 + depth) + model.draft));
    }
    return best;
  }
};

struct Gain {
  double over_plain;  // on the same machine, from the first token on
  double drafted;     // part of the steps of the second half that followed a draft
};
Gain GainOfPolicy(const Workload& w, int64_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  const double p = w.MeanChance(), concentration = 4;
  std::gamma_distribution<double> yes(concentration * p), no(concentration * (1 - p));
  std::normal_distribution<double> noise(1, 0.03);
  std::uniform_real_distribution<double> unit(0, 1);
  const Model belief = w.believed.value_or(w.model);
  const auto believed = [&](int64_t rows) {
    return belief.Cost(384 * (1 - std::pow(1 - 6.0 / 384, static_cast<double>(rows))));
  };
  DepthPolicy policy(kBlock, {believed, belief.draft});
  double speed = 1, plain_s = 0, seconds = 0, n_late = 0, n_late_drafts = 0;
  for (double n = 0; n < static_cast<double>(tokens);) {
    if (random() % 100 == 0) speed = 0.8 + 0.5 * unit(random);
    std::vector<float> confidence(kBlock);
    for (float& c : confidence) {
      const double a = yes(random), b = no(random);
      c = Logit(std::clamp(a / (a + b), 1e-4, 1 - 1e-4));
    }
    int64_t depth = 0, accepted = 0;
    const bool drafts = policy.Drafts();
    if (drafts) policy.Choose(confidence, kBlock, {&depth, 1});
    while (accepted < depth &&
           unit(random) < 1 / (1 + std::exp(-confidence[static_cast<size_t>(accepted)]))) {
      ++accepted;
    }
    const double factor = speed * noise(random);
    const double step_s = w.StepCost(1 + depth) * factor,
                 draft_s = drafts ? w.model.draft * factor : 0;
    policy.Verified(confidence, depth, accepted);
    policy.Stepped(1, 1 + depth, step_s, draft_s);
    seconds += step_s + draft_s;
    plain_s += static_cast<double>(1 + accepted) * w.StepCost(1) * speed;
    n += static_cast<double>(1 + accepted);
    if (n < static_cast<double>(tokens) / 2) continue;
    ++n_late;
    n_late_drafts += drafts;
  }
  return {plain_s / seconds, n_late_drafts / n_late};
}

void ExpectGain(const Workload& w, int64_t tokens, uint32_t n_seeds, double of_best,
                double of_plain) {
  double gain = 0;
  for (uint32_t seed = 0; seed < n_seeds; ++seed)
    gain += GainOfPolicy(w, tokens, seed).over_plain / n_seeds;
  const std::string where = fmt::format("tau {} overlap {} tokens {} dense {} per_row {}", w.tau,
                                        w.overlap, tokens, w.model.dense, w.model.per_row);
  EXPECT_GT(gain, of_best * w.BestGain()) << where;
  EXPECT_GT(gain, of_plain) << where;
}

TEST(DepthPolicy, GainsWhatTheBytesPromiseAtTheReleasedShapes) {
  for (const double overlap : {0.0, 0.3}) {
    for (const double tau : {1.3, 2.0, 2.75, 4.5, 5.5}) {
      ExpectGain({tau, overlap}, 400, 20, 0.97, 0.98);
      ExpectGain({tau, overlap}, 4000, 20, 0.97, 0.99);
    }
  }
}

// The constants were found on the cells above. Other acceptance, overlap, bytes (few dense ones;
// few experts), and rows that take more than their bytes.
TEST(DepthPolicy, GainsTheSameElsewhere) {
  constexpr Model kFewDense{2, 0.752, 2}, kFewExperts{20, 0.5, 3},
      kDearRows{8.08, 0.752, 3.05, 0.1};
  for (const double tau : {1.15, 1.6, 2.4, 3.5, 5.0}) {
    for (const Model& model : {kReleased, kFewDense, kFewExperts, kDearRows}) {
      for (const double overlap : {0.15, 0.6})
        ExpectGain({tau, overlap, model}, 1000, 8, 0.97, 0.98);
    }
  }
}

// Where experts are the bottleneck a row more reads nearly a step more, whatever the text (B21).
// No answer is slower than plain decoding by more than what it takes to find that out, and drafts
// that do not pay all but end.
TEST(DepthPolicy, IsNeverSlowerThanPlainWhereExpertsAreTheBottleneck) {
  constexpr Model kOnlyExperts{0.3, 2, 1.5}, kMostlyExperts{4, 1.5, 3},
      kEveryRowAStep{8, 0.8, 6, 0.7};
  for (const Model& model : {kOnlyExperts, kMostlyExperts, kEveryRowAStep}) {
    for (const double tau : {1.05, 1.4, 2.0, 2.7, 3.5, 5.4}) {  // random ids to repetition
      const Workload w{tau, 0.1, model};
      double gain = 0, drafted = 0;
      for (uint32_t seed = 0; seed < 8; ++seed) {
        const Gain g = GainOfPolicy(w, 2000, seed);
        EXPECT_GT(g.over_plain, 0.97)
            << "tau " << tau << " dense " << model.dense << " seed " << seed;
        gain += g.over_plain / 8;
        drafted += g.drafted / 8;
      }
      EXPECT_GT(gain, 0.99) << "tau " << tau << " dense " << model.dense;
      EXPECT_TRUE(gain > 1 || drafted < 0.05) << "tau " << tau << " dense " << model.dense << ": "
                                              << drafted << " of the steps, gain " << gain;
    }
  }
}

// A small model: a row takes as long as a step, a draft longer, and the bytes say nothing of it.
// The fewer drafts it takes to see that, the better.
TEST(DepthPolicy, SoonSeesThatRowsAndDraftsAreDearerThanBelieved) {
  constexpr Model kSmall{0.4, 0.1, 1.5, 0.4}, kItsBytes{0.85, 0.025, 0.5};
  for (const double tau : {1.05, 1.6, 2.6, 3.5, 4.5}) {
    const Workload w{tau, 0, kSmall, kItsBytes};
    double gain = 0;
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const double one = GainOfPolicy(w, 1000, seed).over_plain;
      EXPECT_GT(one, 0.96) << "tau " << tau << " seed " << seed;
      gain += one / 40;
    }
    EXPECT_GT(gain, 0.985) << "tau " << tau;
  }
}

// What is chosen for a slot does not change with the confidence of later slots: a draft must not be
// verified because of what was drafted behind it.
TEST(DepthPolicy, LaterConfidenceDoesNotReachBack) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> any(-4, 6);
  for (int round = 0; round < 2000; ++round) {
    DepthPolicy policy(kBlock,
                       {[](int64_t rows) { return 1 + 0.3 * static_cast<double>(rows); }, 0.1});
    WarmUp(&policy, 1, 1.0);
    std::vector<float> confidence(kBlock);
    for (float& c : confidence) c = any(random);
    int64_t depth = 0;
    policy.Choose(confidence, kBlock, {&depth, 1});
    for (int64_t slot = 0; slot < kBlock; ++slot) {
      std::vector<float> other = confidence;
      for (size_t later = static_cast<size_t>(slot) + 1; later < other.size(); ++later)
        other[later] = any(random);
      int64_t changed = 0;
      policy.Choose(other, kBlock, {&changed, 1});
      EXPECT_EQ(changed > slot, depth > slot) << "slot " << slot;
    }
  }
}

// The cost may be dear to work out, and the policy runs in every step.
TEST(DepthPolicy, AsksForTheCostOfANumberOfRowsOnce) {
  int64_t asked = 0;
  const auto cost = [&](int64_t rows) {
    ++asked;
    return static_cast<double>(rows);
  };
  DepthPolicy policy(kBlock, {cost, 0.1});
  WarmUp(&policy, 1, 1.0);
  const std::vector<float> confidence(kBlock, 0.0f);
  int64_t depth = 0;
  for (int i = 0; i < 100; ++i) {
    policy.Choose(confidence, kBlock, {&depth, 1});
    policy.Stepped(1, 1 + depth, 1.0, 0.1);
  }
  EXPECT_LE(asked, 1 + 2 + kBlock) << "once for the draft, 0 to 6 rows";
}

TEST(DepthPolicy, SeveralSequencesShareTheRows) {
  DepthPolicy policy(kBlock, {[](int64_t rows) { return static_cast<double>(4 + rows); }, 0.5});
  WarmUp(&policy, 2, 6.0);
  std::vector<float> confidence(2 * kBlock, Logit(0.999));
  std::fill(confidence.begin() + kBlock, confidence.end(), Logit(0.01));
  std::vector<int64_t> depths(2);
  policy.Choose(confidence, kBlock, depths);
  EXPECT_EQ(depths[0], kBlock);
  EXPECT_EQ(depths[1], 0);
}

}  // namespace
}  // namespace deepinfer
