// The fixture of whole verifications, and the distribution of what is emitted.
#include "sampler/speculative.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace deepinfer {
namespace {

using nlohmann::json;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> Scaled(std::span<const float> logits, float temperature) {
  std::vector<float> scaled(logits.begin(), logits.end());
  for (float& logit : scaled) logit /= temperature;
  return scaled;
}

struct Emitted {
  int accepted = 0;
  std::vector<TokenId> tokens;
};

// Verifies a block of drafts as the engine does.
Emitted Verify(const json& line, uint64_t seed) {
  SamplingParams params{.temperature = line["temperature"], .seed = seed};
  const bool sampled = line["draft_kind"] == "sampled";
  const std::vector<TokenId> drafts = line["drafts"];
  const uint32_t first = line["first_draft_position"];
  SamplingWorkspace workspace;
  Emitted out;
  for (size_t r = 0; r <= drafts.size(); ++r) {
    std::vector<float> target = line["target_logits"][r];
    const uint32_t position = first + static_cast<uint32_t>(r);
    if (params.temperature == 0 || r == drafts.size()) {
      out.tokens.push_back(Sample(target, params, {}, position, workspace));
      if (r == drafts.size() || out.tokens.back() != drafts[r]) return out;
      ++out.accepted;
      continue;
    }
    ProcessLogits(target, params, {}, workspace);
    std::vector<float> proposal;
    if (sampled) {
      proposal = Scaled(line["draft_logits"][r].get<std::vector<float>>(), params.temperature);
    }
    const Verdict verdict = VerifyDraft(target, proposal, drafts[r], {seed, 0, position});
    out.tokens.push_back(verdict.token);
    if (!verdict.accepted) return out;
    ++out.accepted;
  }
  return out;
}

TEST(Speculative, AgreesWithTheFixtures) {
  std::ifstream file(DI_SOURCE_DIR "/tests/data/fixtures/sampling/verify.jsonl");
  int n = 0;
  for (std::string text; std::getline(file, text); ++n) {
    const json line = json::parse(text);
    SCOPED_TRACE(line["name"].get<std::string>());
    const Emitted out = Verify(line, std::stoull(line["seed"].get<std::string>()));
    EXPECT_EQ(out.accepted, line["accepted"]);
    EXPECT_EQ(out.tokens, line["tokens"].get<std::vector<TokenId>>());
  }
  EXPECT_EQ(n, 40);
}

constexpr int kTokens = 8;
constexpr int kDraws = 100000;
using Counts = std::array<int, kTokens>;

constexpr float kTarget[kTokens] = {0.3f, -1.2f, 2.1f, 0.9f, 1.6f, -0.4f, 0.0f, 1.1f};
constexpr float kDraft[kTokens] = {1.3f, 0.2f, 1.4f, -0.6f, 1.9f, 0.4f, -1.0f, 0.2f};

// Chi-square of counts against softmax(logits), below the 1e-4 quantile for its degrees of freedom.
void ExpectDistribution(const Counts& counts, const std::vector<float>& processed) {
  double total = 0, chi_square = 0;
  int kept = 0;
  for (float logit : processed) total += std::exp(double{logit});
  for (int t = 0; t < kTokens; ++t) {
    const double expected = kDraws * std::exp(double{processed[t]}) / total;
    if (expected == 0) {
      EXPECT_EQ(counts[t], 0) << "token " << t << " cannot be drawn";
      continue;
    }
    ++kept;
    chi_square += (counts[t] - expected) * (counts[t] - expected) / expected;
  }
  constexpr double kQuantile[kTokens] = {0, 15.14, 18.42, 21.11, 23.51, 25.74, 27.86, 29.88};
  EXPECT_LT(chi_square, kQuantile[kept - 1]) << kept << " tokens";
}

struct Setting {
  float temperature, top_p;
  bool one_hot;
};

class SpeculativeDistribution : public testing::TestWithParam<Setting> {};

TEST_P(SpeculativeDistribution, IsThatOfPlainSampling) {
  const Setting setting = GetParam();
  const SamplingParams params{.temperature = setting.temperature, .top_p = setting.top_p};
  SamplingWorkspace workspace;
  std::vector<float> target(kTarget, kTarget + kTokens);
  ProcessLogits(target, params, {}, workspace);
  Counts counts{};
  const std::vector<float> proposal = Scaled(kDraft, setting.temperature);
  int accepted = 0;
  for (int i = 0; i < kDraws; ++i) {
    const DrawKey key{0x5eed + static_cast<uint64_t>(i), 0, 77};
    const TokenId draft =
        setting.one_hot ? ArgMax(kDraft) : GumbelArgMax(proposal, key, Stream::kDraft);
    const Verdict verdict =
        VerifyDraft(target, setting.one_hot ? std::span<const float>() : proposal, draft, key);
    accepted += verdict.accepted;
    if (verdict.accepted) {
      ASSERT_EQ(verdict.token, draft);
    }
    ++counts[verdict.token];
  }
  ExpectDistribution(counts, target);
  EXPECT_GT(accepted, kDraws / 20);
  EXPECT_LT(accepted, kDraws * 19 / 20) << "no residual was drawn";
}

INSTANTIATE_TEST_SUITE_P(Settings, SpeculativeDistribution,
                         testing::Values(Setting{0.7f, 1, false}, Setting{1, 1, false},
                                         Setting{0.7f, 0.9f, false}, Setting{1, 0.9f, false},
                                         Setting{0.7f, 1, true}, Setting{1, 0.9f, true}));

// The path-identical mode: draft and target are two largest values of logits and the same noise.
// Both are token t when its noise exceeds that of every other s by ln of max(p_s / p_t, q_s / q_t),
// which has the chance 1 / sum over s. That is between what any two draws that do not know each
// other's distribution can promise, (1 - d) / (1 + d), and what rejection accepts, 1 - d; d is the
// distance (sum |p - q|) / 2.
TEST(Speculative, SharedNoiseAgreesAsOftenAsTwoDrawsCan) {
  for (float temperature : {0.7f, 1.0f}) {
    const std::vector<float> target = Scaled(kTarget, temperature);
    const std::vector<float> proposal = Scaled(kDraft, temperature);
    double expected = 0, sum_p = 0, sum_q = 0, common = 0;
    for (int t = 0; t < kTokens; ++t) {
      double sum = 0;
      for (int s = 0; s < kTokens; ++s)
        sum += std::exp(std::max(target[s] - target[t], proposal[s] - proposal[t]));
      expected += 1 / sum;
      sum_p += std::exp(double{target[t]});
      sum_q += std::exp(double{proposal[t]});
    }
    for (int t = 0; t < kTokens; ++t)
      common +=
          std::min(std::exp(double{target[t]}) / sum_p, std::exp(double{proposal[t]}) / sum_q);
    int agreed = 0;
    for (uint32_t position = 0; position < kDraws; ++position) {
      const DrawKey key{11, 0, position};
      agreed += GumbelArgMax(proposal, key, Stream::kTarget) ==
                GumbelArgMax(target, key, Stream::kTarget);
    }
    const double deviation = std::sqrt(kDraws * expected * (1 - expected));
    EXPECT_NEAR(agreed, kDraws * expected, 4.5 * deviation) << "temperature " << temperature;
    EXPECT_LT(expected, common);
    EXPECT_GT(expected, common / (2 - common));
  }
}

TEST(Speculative, DraftsOfTheTargetItselfAreAlwaysAccepted) {
  SamplingWorkspace workspace;
  std::vector<float> target(kTarget, kTarget + kTokens);
  const std::vector<float> proposal = Scaled(kTarget, 0.8f);
  ProcessLogits(target, {.temperature = 0.8f}, {}, workspace);
  for (uint32_t position = 0; position < 10000; ++position) {
    const DrawKey key{9, 0, position};
    const TokenId draft = GumbelArgMax(proposal, key, Stream::kDraft);
    EXPECT_TRUE(VerifyDraft(target, proposal, draft, key).accepted) << position;
  }
}

TEST(Speculative, ImpossibleTokensAreNeverAccepted) {
  const std::vector<float> target = {-kInf, 0.0f, 1.0f};
  const std::vector<float> proposal = {20.0f, 0.0f, 0.0f};
  for (uint32_t position = 0; position < 10000; ++position) {
    for (std::span<const float> q : {std::span<const float>(proposal), std::span<const float>()}) {
      const Verdict verdict = VerifyDraft(target, q, 0, {1, 0, position});
      EXPECT_FALSE(verdict.accepted);
      EXPECT_NE(verdict.token, 0);
    }
  }
}

}  // namespace
}  // namespace deepinfer
