// Bytes of an expert that are no numbers, on ranks: who routes no row to it notices nothing, also
// in another rank's sums; who does is told what one rank tells.
#include <gtest/gtest.h>

#include <ostream>

#include "base/error.h"
#include "engine/damaged_model.h"
#include "rank_runs.h"

namespace deepinfer {
namespace {

constexpr int64_t kExperts = 16;
const std::string kLayer = "layers.9";

struct Outcome {
  Bits logits;
  std::vector<std::string> errors;  // of the steps that failed
  bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& o, std::ostream* out) {
  *out << o.logits.size() << " logits";
  for (const std::string& e : o.errors) *out << ", " << e;
}

// Steps of few rows, which need few of the experts.
Outcome RunFew(Executor& e) {
  Outcome outcome;
  for (const Tokens& text : {Tokens{0, 1166}, {0, 261, 2996}}) {
    const SeqSlot slot = e.kv().Open();
    EXPECT_TRUE(e.kv().Reserve(slot, 8));
    const SeqRows rows[] = {{slot, text, 0, std::ssize(text)}};
    try {
      Append(e.Step(rows), &outcome.logits);
    } catch (const Error& error) {
      outcome.errors.emplace_back(error.what());
    }
    e.kv().Close(slot);
  }
  return outcome;
}

ExecutorOptions DemoOptions(const std::string& dir) {
  ExecutorOptions o = Options("", "release", "auto");
  o.engine.model = dir;
  return o;
}

Outcome Alone(const std::string& dir) {
  Executor e(DemoOptions(dir));
  return RunFew(e);
}

// Of the experts of the last ranks one that the steps need, or do not.
int64_t FindExpert(bool needed) {
  for (int64_t expert = kExperts - 1; expert >= kExperts / 2; --expert) {
    DamagedModel model;
    model.DamageExpert(kLayer, expert);
    if (Alone(model.dir()).errors.empty() != needed) return expert;
  }
  return -1;
}

class RankBadWeightsTest : public ::testing::TestWithParam<World> {
 protected:
  static Outcome OnWorld(const std::string& dir) {
    const World& world = GetParam();
    return OnRanks<Outcome>(DemoOptions(dir), world.ranks, world.options(), RunFew);
  }
};

TEST_P(RankBadWeightsTest, OnlyRowsRoutedToThemNotice) {
  static const int64_t kSpared = FindExpert(false), kNeeded = FindExpert(true);
  ASSERT_GE(kSpared, 0);
  ASSERT_GE(kNeeded, 0);
  const Outcome sound = OnWorld(DamagedModel().dir());
  EXPECT_TRUE(sound.errors.empty());
  // Scales: NaN, and 2^127, with which every product is infinite.
  for (const char scale : {'\xff', '\xfe'}) {
    DamagedModel model;
    model.DamageExpert(kLayer, kSpared, scale);
    EXPECT_EQ(OnWorld(model.dir()), sound);
  }
  DamagedModel model;
  model.DamageExpert(kLayer, kNeeded);
  const Outcome alone = Alone(model.dir()), ranks = OnWorld(model.dir());
  EXPECT_FALSE(alone.errors.empty());
  EXPECT_EQ(ranks.errors, alone.errors);
  if (std::string(GetParam().reduce) == "exact") {
    EXPECT_EQ(ranks.logits, alone.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RankBadWeightsTest,
                         ::testing::ValuesIn(SomeOf({{"tp8r", 8},
                                                     {"ep", 2},
                                                     {"tp", 4},
                                                     {"dp", 2},
                                                     {"tp", 4, 2},
                                                     {"ep", 2, 0, "host", "fast"},
                                                     {"tp", 4, 0, "host", "fast"},
                                                     {"tp8r", 8, 0, "host", "fast"}})),
                         [](const auto& test) {
                           const World& w = test.param;
                           return std::string(w.layout) + "_" + std::to_string(w.ranks) + "_" +
                                  std::to_string(w.batch_ranks) + "_" + w.reduce;
                         });

}  // namespace
}  // namespace deepinfer
