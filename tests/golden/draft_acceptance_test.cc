// How many drafts are accepted: the demo model's figures, and a reference's step by step.
//
// tests/data/fixtures/drafts/held_out.json holds 24 texts that the demo model was not trained on.
// Its makers continued them greedily and measured with a program of their own (their training code,
// every token recomputed from scratch): 2.52 tokens a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "backend/cpu/select.h"
#include "base/cpu_features.h"
#include "engine_runs.h"
#include "sampler/sampling.h"

namespace deepinfer {
namespace {

using nlohmann::json;

constexpr int64_t kBlock = 5;
constexpr int64_t kText = 80;  // tokens of a continuation

std::vector<Tokens> HeldOutPrompts() {
  std::ifstream file(DI_SOURCE_DIR "/tests/data/fixtures/drafts/held_out.json");
  return json::parse(file)["prompts"].get<std::vector<Tokens>>();
}

EngineOptions DemoOptions(int64_t depth) {
  EngineOptions o = DraftOptions(kDemo);
  o.max_model_len = 512;
  o.max_num_batched_tokens = 256;
  o.max_num_seqs = 24;
  o.num_speculative_tokens = depth;
  return o;
}

// ---- tokens per verification ----

using Histogram = std::array<int64_t, kBlock + 1>;  // verifications by accepted drafts

double TokensPerVerification(const Histogram& histogram) {
  int64_t n = 0, tokens = 0;
  for (size_t i = 0; i < histogram.size(); ++i) {
    n += histogram[i];
    tokens += histogram[i] * static_cast<int64_t>(i + 1);
  }
  return static_cast<double>(tokens) / static_cast<double>(n);
}

// Continues the texts. Counts verifications whose whole block lies within the first kText tokens,
// as the makers did.
Histogram Accepted(const EngineOptions& options, float temperature) {
  Executor executor = Load(options);
  Engine engine(&executor);
  for (const Tokens& prompt : HeldOutPrompts()) {
    Request r = GreedyRequest(prompt, kText + kBlock + 1);
    r.sampling.temperature = temperature;
    r.seed = 1;
    engine.Submit(r);
  }
  Histogram histogram{};
  std::map<RequestId, int64_t> n_tokens;
  while (!engine.idle()) {
    for (const Delta& delta : engine.Step()) {
      int64_t& n = n_tokens[delta.id];
      const int64_t anchor = n - 1;  // the newest token of the answer
      if (anchor >= 0 && anchor + kBlock < kText) ++histogram[delta.token_ids.size() - 1];
      n += std::ssize(delta.token_ids);
    }
  }
  return histogram;
}

// Roundings to 8 and 4 bits make the greedy texts of two correct programs part, and then their
// drafts too: levels and numerics were seen between 2.43 and 2.54. So the levels' mean is compared.
TEST(DemoAcceptance, IsTheFigureOfTheModelsMakers) {
  constexpr double kFigure = 2.52, kTolerance = 0.1;
  double sum = 0;
  int n = 0;
  for (const std::string& isa : AvailableLevels(DetectCpuFeatures())) {
    if (isa == "generic" && AvailableLevels(DetectCpuFeatures()).size() > 1) continue;  // slow
    EngineOptions options = DemoOptions(kBlock);
    options.isa = isa;
    sum += TokensPerVerification(Accepted(options, 0));
    ++n;
  }
  EXPECT_NEAR(sum / n, kFigure, kTolerance) << n << " levels";
  EngineOptions options = DemoOptions(kBlock);
  options.numerics = "fp32";
  EXPECT_NEAR(TokensPerVerification(Accepted(options, 0)), kFigure, kTolerance) << "fp32";
}

// Two draws that share their noise but do not know each other's distribution agree less often than
// min(p, q) (sampler/speculative_test.cc): at temperature 0.7 exact accepts about a tenth less.
TEST(DemoAcceptance, OfExactIsNearThatOfRejection) {
  EngineOptions options = DemoOptions(kBlock);
  const double exact = TokensPerVerification(Accepted(options, 0.7f));
  options.speculative = "rejection";
  const double rejection = TokensPerVerification(Accepted(options, 0.7f));
  EXPECT_GT(exact, 1.9);
  EXPECT_GT(exact, 0.86 * rejection);
  EXPECT_LT(exact, rejection);
}

// ---- what exact can accept ----

constexpr float kTemperature = 0.7f;

std::vector<float> Scaled(std::span<const float> logits) {
  std::vector<float> scaled(logits.begin(), logits.end());
  for (float& logit : scaled) logit /= kTemperature;
  return scaled;
}

std::vector<double> Softmax(std::span<const float> logits) {
  const float largest = *std::ranges::max_element(logits);
  std::vector<double> chances;
  double sum = 0;
  for (const float logit : logits) sum += chances.emplace_back(std::exp(double{logit} - largest));
  for (double& chance : chances) chance /= sum;
  return chances;
}

// Chance that draws from p and q that share their Gumbel noise are the same token. Both are t when
// its noise exceeds that of every s by ln max(p_s / p_t, q_s / q_t). In the order of falling p / q
// the first is the larger up to t, the second behind it.
double ChanceOfSharedNoise(std::span<const double> p, std::span<const double> q) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return p[a] * q[b] > p[b] * q[a]; });
  double chance = 0, p_before = 0, q_left = 1;
  for (const size_t t : order) {
    if (p[t] > 0 && q[t] > 0) chance += 1 / (p_before / p[t] + q_left / q[t]);
    p_before += p[t];
    q_left -= q[t];
  }
  return chance;
}

// Goes on with a prompt as `exact` does with that seed. visit(target, draft, accepted): for every
// draft that is verified, with the logits over temperature that it and the model's own token are
// drawn from.
template <typename Visit>
void SampleWithDrafts(Executor& executor, Tokens text, uint64_t seed, const Visit& visit) {
  const auto vocab_size = static_cast<size_t>(executor.config().vocab_size);
  const size_t end = text.size() + kText;
  const SeqSlot slot = executor.kv().Open();
  EXPECT_TRUE(executor.kv().Reserve(slot, static_cast<int64_t>(end) + kBlock));
  const SeqRows prompt{slot, std::span(text).first(text.size() - 1), 0, 0};
  executor.Step({&prompt, 1});
  while (text.size() < end) {
    const auto anchor = static_cast<int64_t>(text.size()) - 1;
    executor.kv().SetLength(slot, anchor);
    const DraftSeq seq{slot, text.back(), kTemperature, seed, 0, Stream::kTarget};
    const Drafts drafts = executor.Draft({&seq, 1});
    const std::vector<float> draft_logits(drafts.logits.begin(), drafts.logits.end());
    Tokens rows = text;
    rows.insert(rows.end(), drafts.tokens.begin(), drafts.tokens.end());
    const SeqRows step{slot, rows, anchor, 1 + kBlock};
    const std::span<const float> logits = executor.Step({&step, 1});
    for (size_t r = 0; r <= kBlock; ++r) {
      const std::vector<float> target = Scaled(logits.subspan(r * vocab_size, vocab_size));
      const DrawKey key{seq.seed, seq.sample, static_cast<uint32_t>(text.size())};
      text.push_back(GumbelArgMax(target, key, Stream::kTarget));
      if (r == kBlock) break;
      const bool accepted = text.back() == rows[text.size() - 1];
      visit(target, Scaled(std::span(draft_logits).subspan(r * vocab_size, vocab_size)), accepted);
      if (!accepted) break;
    }
  }
  executor.kv().Close(slot);
}

// Of a pair of distributions rejection accepts sum min(p, q); draws that share their noise agree
// less often. What `exact` accepts is that and no less.
TEST(DemoAcceptance, OfExactIsWhatSharedNoiseAllows) {
  EngineOptions options = DemoOptions(kBlock);
  Executor executor = Load(options);
  double expected = 0, variance = 0, common = 0;
  int64_t n = 0, n_accepted = 0;
  const auto visit = [&](std::span<const float> target, std::span<const float> draft,
                         bool accepted) {
    const std::vector<double> p = Softmax(target), q = Softmax(draft);
    const double chance = ChanceOfSharedNoise(p, q);
    expected += chance;
    variance += chance * (1 - chance);
    for (size_t t = 0; t < p.size(); ++t) common += std::min(p[t], q[t]);
    n_accepted += accepted;
    ++n;
  };
  uint64_t seed = 0;  // another noise for each: verifications are independent
  for (const Tokens& prompt : HeldOutPrompts()) SampleWithDrafts(executor, prompt, ++seed, visit);
  const auto count = static_cast<double>(n);
  EXPECT_NEAR(static_cast<double>(n_accepted), expected, 4.5 * std::sqrt(variance)) << "of " << n;
  EXPECT_LT(expected, 0.96 * common) << "of " << n << ": within 5 % of rejection";
  EXPECT_GT(expected, 0.9 * common) << "of " << n;
  EXPECT_GT(expected / count, common / (2 * count - common)) << "the least that two draws can";
}

// ---- position by position (B13) ----

// A text in the caches of one slot, token by token as it is accepted.
class Draftee {
 public:
  Draftee(Executor* executor, Tokens text) : executor_(*executor), text_(std::move(text)) {
    slot_ = executor_.kv().Open();
    EXPECT_TRUE(executor_.kv().Reserve(slot_, std::ssize(text_)));
  }
  ~Draftee() { executor_.kv().Close(slot_); }
  Draftee(const Draftee&) = delete;
  Draftee& operator=(const Draftee&) = delete;

  // How many drafts behind the anchor are what the text goes on with.
  int64_t AcceptedBehind(int64_t anchor) {
    Compute(anchor, true);
    const DraftSeq draft{slot_, text_[static_cast<size_t>(anchor)], 0, 0, 0, Stream::kDraft};
    const Drafts drafts = executor_.Draft({&draft, 1});
    const std::span<const TokenId> next = std::span(text_).subspan(static_cast<size_t>(anchor) + 1);
    size_t n = 0;
    while (n < drafts.tokens.size() && n < next.size() && drafts.tokens[n] == next[n]) ++n;
    return static_cast<int64_t>(n);
  }

  // Goes on to the first `end` tokens. Without draft_rows they leave nothing for drafts.
  void Compute(int64_t end, bool draft_rows) {
    const int64_t first = executor_.kv().length(slot_);
    const SeqRows rows{slot_, std::span(text_).first(static_cast<size_t>(end)), first, 0};
    executor_.Step({&rows, 1}, nullptr, draft_rows);
    executor_.kv().SetLength(slot_, end);
  }

 private:
  Executor& executor_;
  const Tokens text_;
  SeqSlot slot_;
};

// examples.json tells for greedy answers what an independent reference of the model accepted in
// each of its verifications.
TEST(DemoAcceptance, IsThatOfTheReferenceAtEveryStep) {
  EngineOptions options = DemoOptions(kBlock);
  options.max_num_batched_tokens = 512;
  Executor executor = Load(options);
  std::ifstream file(kDemo + "/examples.json");
  Histogram expected{}, same{};
  for (const json& example : json::parse(file)) {
    Tokens text = example["prompt_ids"];
    int64_t anchor = std::ssize(text);
    const Tokens answer = example["greedy_ids"];
    text.insert(text.end(), answer.begin(), answer.end());
    const int64_t end = std::ssize(text);
    Draftee draftee(&executor, std::move(text));
    for (int64_t accepted : example["draft_accepted"].get<std::vector<int64_t>>()) {
      // The reference went on behind the end of the answer.
      const int64_t known = std::min(accepted, end - 1 - anchor);
      ++expected[static_cast<size_t>(known)];
      if (draftee.AcceptedBehind(anchor) == known) ++same[static_cast<size_t>(known)];
      anchor += 1 + accepted;
    }
  }
  int64_t n = 0, differ = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    n += expected[i];
    differ += expected[i] - same[i];
    EXPECT_GE(expected[i], 4) << "of " << i << " accepted drafts there are too few examples";
    EXPECT_GE(same[i], expected[i] * 3 / 4) << i << " accepted drafts";
  }
  EXPECT_LE(differ, n / 20) << "of " << n << " steps: more than near ties explain";
}

// A depth only cuts blocks: the engine accepts at each anchor the drafts that are what plain
// decoding says, up to the depth.
TEST(DemoAcceptance, AtEveryDepthIsThatOfTheBlockCut) {
  EngineOptions options = DemoOptions(kBlock);
  options.speculative = "off";
  Executor plain = Load(options);
  options.speculative = "exact";
  std::vector<Tokens> prompts = HeldOutPrompts();
  prompts.resize(6);
  std::vector<Request> requests;
  for (const Tokens& prompt : prompts) requests.push_back(GreedyRequest(prompt, kText + kBlock));
  const std::vector<SequenceResult> answers = Answers(plain, requests);

  std::vector<std::vector<int64_t>> accepted(prompts.size());  // by place in the answer
  Executor drafting = Load(options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Tokens text = prompts[i];
    text.insert(text.end(), answers[i].token_ids.begin(), answers[i].token_ids.end());
    const int64_t n_prompt = std::ssize(prompts[i]);
    Draftee draftee(&drafting, std::move(text));
    for (int64_t a = 0; a < kText; ++a) accepted[i].push_back(draftee.AcceptedBehind(n_prompt + a));
  }
  for (int64_t depth = 1; depth <= kBlock; ++depth) {
    options.num_speculative_tokens = depth;
    Executor executor = Load(options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      Engine engine(&executor);
      engine.Submit(requests[i]);
      engine.Step();  // the prompt, and the first token
      for (int64_t anchor = 0; anchor < kText;) {
        const std::vector<Delta> deltas = engine.Step();
        ASSERT_EQ(deltas.size(), 1u);
        const int64_t n = std::ssize(deltas[0].token_ids);
        ASSERT_EQ(n, 1 + std::min(depth, accepted[i][static_cast<size_t>(anchor)]))
            << "depth " << depth << ", prompt " << i << ", anchor " << anchor;
        anchor += n;
      }
    }
  }
}

// A pause leaves only its last rows for drafts. They do as well behind these as behind all.
TEST(DemoAcceptance, NeedsTheLastRowsOfAPauseOnly) {
  constexpr int64_t kPause = 64, kRowsLeft = 16;  // the shortest pause; engine.cc
  EngineOptions options = DemoOptions(kBlock);
  Executor executor = Load(options);
  std::vector<Request> requests;
  for (const Tokens& prompt : HeldOutPrompts())
    requests.push_back(GreedyRequest(prompt, kText + kBlock + 1));
  const std::vector<SequenceResult> answers = Answers(executor, requests);
  double all = 0, left = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    Tokens text = requests[i].prompt;
    text.insert(text.end(), answers[i].token_ids.begin(), answers[i].token_ids.end());
    for (const int64_t place : {kText - 6, kText}) {
      const int64_t anchor = std::ssize(requests[i].prompt) + place;
      if (anchor + kBlock >= std::ssize(text)) continue;
      all += 1 + static_cast<double>(Draftee(&executor, text).AcceptedBehind(anchor));
      Draftee paused(&executor, text);
      paused.Compute(anchor - kPause, true);
      paused.Compute(anchor - kRowsLeft, false);
      left += 1 + static_cast<double>(paused.AcceptedBehind(anchor));
    }
  }
  EXPECT_GT(all, 80) << "too few texts go on for so long";
  EXPECT_GT(left, 0.92 * all);
}

}  // namespace
}  // namespace deepinfer
