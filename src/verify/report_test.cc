#include "verify/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace deepinfer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

GoldenArray Floats(std::vector<int64_t> shape, std::vector<float> values) {
  return {std::move(shape), true, std::move(values), {}};
}

GoldenArray Ints(std::vector<int64_t> shape, std::vector<int64_t> ints) {
  return {std::move(shape), false, {}, std::move(ints)};
}

// A set of one layer and two positions, and an engine that computes exactly that.
struct Example {
  explicit Example(const std::string& mode) {
    set.name = "m";
    set.mode = mode;
    set.prompt_name = "p";
    set.prompt = {3, 4};
    set.argmax = {5, 6};
    set.argmax_margin = {2.0f, 5e-4f};
    set.greedy = {6, 7, 8};
    set.greedy_margin = {5e-4f, 2.0f, 2.0f};
    set.kept_positions = {0, 1};
    set.arrays["logits"] = Floats({2, 2}, {1, -2, 3, 4});
    set.arrays["layers.0.attn_in"] = Floats({2, 2}, {1, 1, 1, 1});
    set.arrays["layers.0.selected"] = Ints({2, 2}, {0, -1, 0, 1});
    set.arrays["layers.0.index_gap"] = Floats({2}, {1e30f, 5e-5f});
    set.arrays["layers.0.engram_rows"] = Ints({2, 2}, {9, 8, 7, 6});
    set.arrays["streams.0"] = Floats({2, 1, 2}, {1, 1, 1, 1});
    set.arrays["streams.1"] = Floats({2, 1, 2}, {1, 2, 3, 4});
    set.arrays["greedy_logits"] = Floats({2, 2}, {1, 2, 3, 4});
    set.arrays["first_draft_logits"] = Floats({2, 2}, {0, 0, 0, 0});
    for (const auto& [name, array] : set.arrays) {
      if (!IsDraftArray(name) && name != "layers.0.index_gap") engine.arrays[name] = array;
    }
    engine.argmax = set.argmax;
    engine.greedy = set.greedy;
  }
  std::vector<std::string> Mismatches() const {
    Report report(set.mode);
    report.CheckModel(set, engine);
    report.CheckLayers(set, engine);
    report.Finish();
    return report.mismatches();
  }
  GoldenSet set;
  Replayed engine;
};

TEST(ReportTest, EqualResultsPass) {
  for (const char* mode : {"fp32", "release", "trn2"})
    EXPECT_THAT(Example(mode).Mismatches(), IsEmpty()) << mode;
}

TEST(ReportTest, LastLineCountsSetsAndMismatches) {
  Example e("fp32");
  e.engine.arrays["logits"].values[1] += 1e-3f;
  Report report("fp32");
  report.CheckModel(e.set, e.engine);
  report.CheckModel(e.set, e.engine);
  report.Finish();
  EXPECT_THAT(report.Text(), ::testing::EndsWith("\nverify: 2 sets, 2 mismatches\n"));
}

// A prompt of two tokens, a draft behind it, and one step that accepts the first of two drafts.
struct DraftExample {
  DraftExample() {
    set.prompt = {1, 2};
    set.greedy = {3, 4, 5};
    set.greedy_margin = {9, 9, 9};
    set.first_draft = GoldenDraft{3, {4, 6}, {0.5f, -1}};
    set.arrays["first_draft_logits"] = {{2, 3}, true, {4, 1, 0, 0, 1, 5}, {}};
    set.speculative = {{*set.first_draft, {3, 4}, 2, {4, 5, 0}, 1}};
    engine = {{*set.first_draft, set.arrays["first_draft_logits"].values, {}},
              {*set.first_draft, {}, {4, 5, 0}}};
  }
  std::vector<std::string> Mismatches() {
    Report report("fp32");
    report.CheckDrafts(set, engine);
    report.Finish();
    return report.mismatches();
  }
  GoldenSet set;
  std::vector<ReplayedDraft> engine;
};

TEST(ReportTest, DraftsAreHeldSlotBySlotToTheFirstThatDiffers) {
  EXPECT_THAT(DraftExample().Mismatches(), IsEmpty());
  DraftExample e;
  e.engine[1].draft.drafts = {5, 7};
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("slot 0 drafts 5 instead of 4, lead 3.000")));
  e.set.speculative[0].margin[0] = 5e-4f;
  EXPECT_THAT(e.Mismatches(), IsEmpty()) << "a near tie, and what follows from it";
  DraftExample first;
  first.engine[0].draft.drafts[1] = 0;
  EXPECT_THAT(first.Mismatches(),
              ElementsAre(HasSubstr("slot 1 drafts 0 instead of 6, lead 4.000")));
}

TEST(ReportTest, DraftLogitsAndConfidenceAreHeldToTheirLimits) {
  DraftExample e;
  e.engine[0].logits[5] += 3e-4f;
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("first_draft_logits")));
  DraftExample c;
  c.engine[1].draft.confidence[1] += 6e-5f;
  EXPECT_THAT(c.Mismatches(), ElementsAre(HasSubstr("draft at 2 confidence")));
}

TEST(ReportTest, VerificationsAreHeldUpToTheFirstRejection) {
  DraftExample e;
  e.engine[1].verified[2] = 8;  // behind the rejected draft
  EXPECT_THAT(e.Mismatches(), IsEmpty());
  e.engine[1].verified[1] = 8;
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("row 1 gives 8 instead of 5")));
  e.set.greedy_margin[2] = 0;
  EXPECT_THAT(e.Mismatches(), IsEmpty());
}

TEST(ReportTest, DraftsThatWereNotComputedAreNamed) {
  DraftExample e;
  e.engine.clear();
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("drafts: expected 2, computed 0")));
}

TEST(ReportTest, SharpLimitsDependOnTheKindAndTheMagnitude) {
  const struct {
    const char* array;
    float passes, fails;
  } cases[] = {{"logits", 1.9e-4f, 2.1e-4f},
               {"layers.0.attn_in", 4.9e-5f, 5.2e-5f},
               {"streams.1", 0.9e-4f, 1.1e-4f},
               {"greedy_logits", 1.9e-4f, 2.1e-4f}};
  for (const auto& c : cases) {
    Example e("fp32");
    e.engine.arrays[c.array].values[0] += c.passes;
    EXPECT_THAT(e.Mismatches(), IsEmpty()) << c.array;
    e.engine.arrays[c.array].values[0] = e.set.arrays[c.array].values[0] + c.fails;
    EXPECT_FALSE(e.Mismatches().empty()) << c.array;
  }
  Example large("fp32");
  large.set.arrays["logits"].values[0] = large.engine.arrays["logits"].values[0] = 20;
  large.engine.arrays["logits"].values[1] += 3.9e-4f;  // limit 2e-4 * 20 / 10
  EXPECT_THAT(large.Mismatches(), IsEmpty());
}

TEST(ReportTest, NanIsAMismatchInEveryMode) {
  for (const char* mode : {"fp32", "release"}) {
    Example e(mode);
    e.engine.arrays["logits"].values[3] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("m.") /* the set */)) << mode;
  }
}

TEST(ReportTest, RelativeLimitOfTheWholeModel) {
  Example e("release");  // |logits|: rms 2.7386, so one difference d gives d / 2 / 2.7386
  e.engine.arrays["logits"].values[0] += 1.09f;
  EXPECT_THAT(e.Mismatches(), IsEmpty());
  e.engine.arrays["logits"].values[0] += 0.02f;
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("m.release.p logits")));
}

TEST(ReportTest, OtherValuesOfRoundedModesAreCountedTogether) {
  Example e("release");
  e.set.arrays["layers.1.attn_in"] = e.engine.arrays["layers.1.attn_in"] =
      Floats({2, 2}, {1, 1, 1, 1});
  // One difference d among 8 values of size 1 gives d / 2.83, the limit is 0.35.
  e.engine.arrays["layers.1.attn_in"].values[0] += 0.98f;
  EXPECT_THAT(e.Mismatches(), IsEmpty());
  e.engine.arrays["layers.1.attn_in"].values[0] += 0.02f;
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("worst in m.release.p layers.1.attn_in")));
}

TEST(ReportTest, SelectionsMayDifferAtNearTiesOnly) {
  Example e("fp32");
  e.engine.arrays["layers.0.selected"].ints = {0, -1, 0, 2};  // gap 5e-5
  EXPECT_THAT(e.Mismatches(), IsEmpty());
  e.engine.arrays["layers.0.selected"].ints = {1, -1, 0, 1};
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("layers.0.selected: 1 of 2 rows")));
}

TEST(ReportTest, EngramRowsAreExactInEveryMode) {
  for (const char* mode : {"fp32", "release", "trn2"}) {
    Example e(mode);
    e.engine.arrays["layers.0.engram_rows"].ints = {8, 9, 7, 6};  // the same set, another order
    EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("engram_rows"))) << mode;
  }
}

TEST(ReportTest, ArgmaxCountsClearPositions) {
  Example e("fp32");
  e.engine.argmax[1] = 9;  // lead 5e-4
  EXPECT_THAT(e.Mismatches(), IsEmpty());
  e.engine.argmax[0] = 9;
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("position 0")));
}

TEST(ReportTest, ArgmaxOfRoundedModesCountsAllSetsTogether) {
  for (const auto& [n, mismatches] : {std::pair<int, size_t>{49, 1}, {50, 0}}) {
    Report report("release");
    for (int i = 0; i < n; ++i) {
      Example e("release");
      if (i == 0) e.engine.argmax[0] = 9;
      report.CheckModel(e.set, e.engine);
    }
    report.Finish();
    EXPECT_THAT(report.mismatches(), SizeIs(mismatches)) << n;
  }
}

TEST(ReportTest, GreedyStopsAtTheFirstDifference) {
  Example e("fp32");
  e.engine.greedy = {1, 2, 3};                               // first difference at a lead of 5e-4
  e.engine.arrays["greedy_logits"].values = {1, 2, 70, 70};  // follows another token
  EXPECT_THAT(e.Mismatches(), IsEmpty());
  e.engine.greedy = {6, 2, 3};
  e.engine.arrays["greedy_logits"] = e.set.arrays["greedy_logits"];
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("step 1 gives 2 instead of 7")));
}

TEST(ReportTest, FedLayersMustBeNearlyEqual) {
  Example e("release");
  GoldenArray& got = e.engine.arrays["streams.1"];
  e.set.arrays["streams.1"] = got = Floats({2, 1, 50}, std::vector<float>(100, 1.0f));
  for (int i = 0; i < 5; ++i) got.values[static_cast<size_t>(i)] += 1e-3f;
  EXPECT_THAT(e.Mismatches(), IsEmpty());  // 95 %, 2.2e-4
  got.values[5] += 1e-3f;
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("fed layer 0: 94.00 %")));
  got.values.assign(100, 1.0f);
  got.values[0] += 0.021f;
  EXPECT_THAT(e.Mismatches(), ElementsAre(HasSubstr("relative error 2.10e-03")));
}

TEST(ReportTest, ArraysTheEngineDidNotComputeAreNamed) {
  Example e("fp32");
  e.engine.arrays.erase("layers.0.attn_in");
  EXPECT_THAT(e.Mismatches(), ElementsAre("m.fp32.p layers.0.attn_in: not computed"));
}

}  // namespace
}  // namespace deepinfer
