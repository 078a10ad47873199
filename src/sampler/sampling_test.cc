// Fixtures of the whole pipeline, each rule against a plain re-statement of it, and what a draw
// must not depend on.
#include "sampler/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>

#include "base/error.h"

namespace deepinfer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> prompt, output;
  History history() const { return {prompt, output}; }
};

Case ReadCase(const json& line) {
  Case c;
  c.logits = line["logits"].get<std::vector<float>>();
  const json& p = line["params"];
  c.params.temperature = p.value("temperature", 1.0f);
  c.params.top_p = p.value("top_p", 1.0f);
  c.params.top_k = p.value("top_k", 0);
  c.params.min_p = p.value("min_p", 0.0f);
  c.params.repetition_penalty = p.value("repetition_penalty", 1.0f);
  c.params.frequency_penalty = p.value("frequency_penalty", 0.0f);
  c.params.presence_penalty = p.value("presence_penalty", 0.0f);
  for (const json& bias : p.value("logit_bias", json::array()))
    c.params.logit_bias.emplace_back(bias[0], bias[1]);
  c.params.seed = std::stoull(line["seed"].get<std::string>());
  c.prompt = p.value("prompt", std::vector<TokenId>{});
  c.output = p.value("output", std::vector<TokenId>{});
  return c;
}

std::vector<float> RandomLogits(int size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<TokenId> Kept(const std::vector<float>& logits) {
  std::vector<TokenId> kept;
  for (TokenId t = 0; t < std::ssize(logits); ++t) {
    if (logits[t] != -kInf) kept.push_back(t);
  }
  return kept;
}

std::vector<TokenId> KeptAfter(std::vector<float> logits, const SamplingParams& params) {
  SamplingWorkspace workspace;
  ProcessLogits(logits, params, {}, workspace);
  return Kept(logits);
}

template <class Function>
std::string MessageOf(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Sampling, AgreesWithTheFixtures) {
  std::ifstream file(DI_SOURCE_DIR "/tests/data/fixtures/sampling/sample.jsonl");
  int n = 0;
  SamplingWorkspace workspace;  // shared on purpose: nothing may leak from one call to the next
  for (std::string text; std::getline(file, text); ++n) {
    const json line = json::parse(text);
    SCOPED_TRACE(line["name"].get<std::string>());
    const Case c = ReadCase(line);
    EXPECT_EQ(Sample(c.logits, c.params, c.history(), line["position"], workspace),
              line["token"].get<TokenId>());

    std::vector<float> processed = c.logits;
    ProcessLogits(processed, c.params, c.history(), workspace);
    EXPECT_EQ(Kept(processed), line["kept"].get<std::vector<TokenId>>());
    for (size_t t = 0; t < processed.size(); ++t) {
      if (line["processed"][t].is_null()) continue;
      const float expected = line["processed"][t];  // printed with six decimals
      EXPECT_NEAR(processed[t], expected, 2e-6f * std::max(1.0f, std::fabs(expected)))
          << "token " << t;
    }
  }
  EXPECT_EQ(n, 40);
}

// Steps of 1/8 to 32 nats between neighbours of a sorted row, with and without equal values.
TEST(Sampling, TopPKeepsTheSetOfAFullSort) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<float> logits = RandomLogits(20000, seed);
    constexpr float kScales[] = {0.001f, 0.3f, 1, 10};
    for (float& logit : logits) logit *= kScales[seed % 4];
    if (seed % 3 == 1) {
      for (float& logit : logits) logit = std::round(logit * 4) / 4;
    }
    std::vector<TokenId> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
    long double total = 0, sum = 0;
    for (float logit : logits) total += std::exp(static_cast<long double>(logit));
    const float top_p = 0.05f + 0.0499f * static_cast<float>(seed % 20);
    std::vector<TokenId> expected;
    for (TokenId t : order) {
      if (sum >= top_p * total) break;
      expected.push_back(t);
      sum += std::exp(static_cast<long double>(logits[t]));
    }
    std::ranges::sort(expected);
    EXPECT_EQ(KeptAfter(logits, {.top_p = top_p}), expected) << "top_p " << top_p;
  }
}

TEST(Sampling, TopPPrefersTheLowerIdAmongEqualValues) {
  EXPECT_EQ(KeptAfter({1, 1, 1, 1}, {.top_p = 0.5f}), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(KeptAfter({0, 2, 2, 2}, {.top_p = 0.4f}), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(KeptAfter({0, 9, 0}, {.top_p = 1e-6f}), (std::vector<TokenId>{1}))
      << "the largest always stays";
}

TEST(Sampling, TopKKeepsAllTiesAtTheThreshold) {
  EXPECT_EQ(KeptAfter({3, 1, 2, 2, 0}, {.top_k = 2}), (std::vector<TokenId>{0, 2, 3}));
  EXPECT_EQ(KeptAfter({3, 1, 2}, {.top_k = 3}), (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(KeptAfter({3, 1, 2}, {.top_k = -1}), (std::vector<TokenId>{0, 1, 2}));
}

TEST(Sampling, TopKKeepsTheSetOfAFullSort) {
  for (int size : {1, 63, 64, 65, 1000}) {
    for (bool equals : {false, true}) {
      std::vector<float> logits = RandomLogits(size, static_cast<uint32_t>(size));
      if (equals) {
        for (float& logit : logits) logit = std::round(logit);
      }
      std::vector<float> sorted = logits;
      std::ranges::sort(sorted, std::greater());
      for (int k = 1; k <= size + 1; k += 1 + k / 7) {
        const float least = sorted[static_cast<size_t>(std::min(k, size) - 1)];
        std::vector<TokenId> expected;
        for (TokenId t = 0; t < size; ++t) {
          if (logits[static_cast<size_t>(t)] >= least) expected.push_back(t);
        }
        EXPECT_EQ(KeptAfter(logits, {.top_k = k}), expected) << k << " of " << size;
      }
    }
  }
}

TEST(Sampling, MinPComesBeforeTopKAndTopPAfterIt) {
  // Probabilities 0.4 0.3 0.2 0.1. min_p 0.6 keeps the first two, of which top_p 0.5 (0.57 of the
  // rest) needs one.
  const std::vector<float> logits{std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  EXPECT_EQ(KeptAfter(logits, {.min_p = 0.6f}), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(KeptAfter(logits, {.top_p = 0.5f}), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(KeptAfter(logits, {.top_p = 0.5f, .min_p = 0.6f}), (std::vector<TokenId>{0}));
  EXPECT_EQ(KeptAfter(logits, {.min_p = 1}), (std::vector<TokenId>{0}));
}

TEST(Sampling, PenaltiesCountAsDocumented) {
  const std::vector<TokenId> prompt{0, 1, 1}, output{2, 2, 1};
  std::vector<float> logits{2, -2, 3, 4};
  SamplingWorkspace workspace;
  ProcessLogits(logits,
                {.repetition_penalty = 2, .frequency_penalty = 0.5f, .presence_penalty = 0.25f},
                {prompt, output}, workspace);
  // Token 0: prompt only, 2/2. Token 1: -2*2, once in the output. Token 2: 3/2, twice. Token 3:
  // untouched.
  EXPECT_EQ(logits, (std::vector<float>{1, -4.75f, 0.25f, 4}));
}

TEST(Sampling, MasksHoldAgainstEveryLaterStep) {
  const uint32_t allowed[] = {0b0110};
  const std::vector<float> logits{9, 1, 2, 9};
  SamplingWorkspace workspace;
  EXPECT_EQ(Sample(logits, {.temperature = 0, .logit_bias = {{0, 100}}}, {}, 0, workspace, allowed),
            2);
  std::vector<float> processed = logits;
  ProcessLogits(processed, {.repetition_penalty = 0.5f}, {{}, std::vector<TokenId>{0, 3}},
                workspace, allowed);
  EXPECT_EQ(Kept(processed), (std::vector<TokenId>{1, 2}));
}

TEST(Sampling, StopIdsWaitForMinTokens) {
  const SamplingParams params{.temperature = 0, .min_tokens = 2, .stop_ids = {1}};
  const std::vector<float> logits{0, 5, 3};
  const std::vector<TokenId> one{0}, two{0, 0};
  SamplingWorkspace workspace;
  EXPECT_EQ(Sample(logits, params, {{}, one}, 1, workspace), 2);
  EXPECT_EQ(Sample(logits, params, {{}, two}, 2, workspace), 1);
}

TEST(Sampling, GreedyTakesTheLowestIdAndIgnoresTheSeed) {
  SamplingWorkspace workspace;
  const std::vector<float> logits{1, 7, 7, 0};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(Sample(logits, {.temperature = 0, .seed = seed}, {}, 3, workspace), 1);
    EXPECT_EQ(Sample(logits, {.temperature = 9e-6f, .top_k = 1, .seed = seed}, {}, 3, workspace),
              1);
  }
}

TEST(Sampling, TakesLargestLogitOnlyWhenSampleDoes) {
  const std::vector<float> logits = RandomLogits(300, 11);
  const std::vector<TokenId> text = {ArgMax(logits), 5};
  const SamplingParams greedy = {.temperature = 0, .top_p = 0.5f, .min_p = 0.9f, .top_k = 3};
  std::vector<SamplingParams> params(8, greedy);
  params[1].temperature = 1;
  params[2].repetition_penalty = 1.5f;
  params[3].frequency_penalty = 2;
  params[4].presence_penalty = 2;
  params[5].logit_bias = {{5, 100.0f}};
  params[6].min_tokens = 3, params[6].stop_ids = {text[0]};
  params[7].min_tokens = 2, params[7].stop_ids = {text[0]};
  SamplingWorkspace workspace;
  for (size_t i = 0; i < params.size(); ++i) {
    const bool takes = params[i].TakesLargestLogit(2);
    EXPECT_EQ(takes, i == 0 || i == 7) << i;
    if (takes) {
      EXPECT_EQ(Sample(logits, params[i], {{}, text}, 2, workspace), text[0]) << i;
    }
  }
}

TEST(Sampling, TinyTemperaturesAreRaised) {
  EXPECT_EQ(SamplingParams{.temperature = 9e-6f}.EffectiveTemperature(), 0);
  EXPECT_EQ(SamplingParams{.temperature = 1e-4f}.EffectiveTemperature(), 0.01f);
  EXPECT_EQ(SamplingParams{.temperature = 0.02f}.EffectiveTemperature(), 0.02f);
}

// Pearson's chi-square over 7 degrees of freedom stays below 24.3 with probability 0.999; seeds are
// fixed.
TEST(Sampling, DrawsFollowTheSoftmax) {
  const std::vector<float> logits{0.5f, -1, 2, 0, 1, -2, 1.5f, 0.25f};
  double total = 0;
  for (float logit : logits) total += std::exp(logit);
  const int n = 40000;
  const auto chi_square = [&](auto key_of) {
    std::vector<int> count(logits.size());
    for (uint32_t i = 0; i < n; ++i) ++count[GumbelArgMax(logits, key_of(i), Stream::kTarget)];
    double sum = 0;
    for (size_t t = 0; t < logits.size(); ++t) {
      const double expected = n * std::exp(logits[t]) / total;
      sum += (count[t] - expected) * (count[t] - expected) / expected;
    }
    return sum;
  };
  EXPECT_LT(chi_square([](uint32_t i) { return DrawKey{5, 0, i}; }), 24.3) << "over positions";
  EXPECT_LT(chi_square([](uint32_t i) { return DrawKey{i, 0, 77}; }), 24.3) << "over seeds";
  EXPECT_LT(chi_square([](uint32_t i) { return DrawKey{5, i, 77}; }), 24.3) << "over samples";
}

TEST(Sampling, ADrawDependsOnlyOnItsKeyAndLogits) {
  SamplingWorkspace fresh, used;
  const std::vector<float> other = RandomLogits(900, 1);
  for (int64_t position = 0; position < 20; ++position) {
    const std::vector<float> logits = RandomLogits(500, 100 + static_cast<uint32_t>(position));
    const SamplingParams params{.top_p = 0.9f, .repetition_penalty = 1.2f, .seed = 42};
    const std::vector<TokenId> output{3, 4, 4};
    Sample(other, {.top_k = 5, .frequency_penalty = 1}, {output, output}, position + 9, used);
    EXPECT_EQ(Sample(logits, params, {{}, output}, position, fresh),
              Sample(logits, params, {{}, output}, position, used));
  }
}

// Vocabulary shards: each part of the ids is drawn alone (the rest masked), then the largest of
// their values wins.
TEST(Sampling, MaskedTokensDoNotMoveTheNoiseOfOthers) {
  const std::vector<float> logits = RandomLogits(1000, 3);
  for (uint32_t position = 0; position < 50; ++position) {
    const DrawKey key{7, 1, position};
    const TokenId whole = GumbelArgMax(logits, key, Stream::kTarget);
    std::vector<float> around(logits.size(), -kInf);
    for (TokenId t = std::max(0, whole - 10); t < std::min(1000, whole + 10); ++t)
      around[t] = logits[t];
    EXPECT_EQ(GumbelArgMax(around, key, Stream::kTarget), whole);
  }
}

TEST(Sampling, RefusesLogitsThatAreNotNumbers) {
  SamplingWorkspace workspace;
  for (float bad : {kNan, -kNan, kInf}) {
    for (float temperature : {0.0f, 1.0f}) {
      const std::vector<float> logits{0, 1, bad, 2};
      EXPECT_THAT(
          MessageOf([&] { Sample(logits, {.temperature = temperature}, {}, 0, workspace); }),
          HasSubstr("logit of token 2"));
    }
  }
  EXPECT_THAT(MessageOf([&] {
                Sample(std::vector<float>{-kInf, -kInf}, {}, {}, 0, workspace);
              }),
              HasSubstr("no token that may be drawn"));
  const std::vector<TokenId> history{4};
  EXPECT_THAT(
      MessageOf([&] {
        Sample(std::vector<float>{0, 1}, {.presence_penalty = 1}, {{}, history}, 0, workspace);
      }),
      HasSubstr("output token"));
}

TEST(Sampling, ValidateNamesTheParameterAndItsRange) {
  const auto message = [](const SamplingParams& params) {
    return MessageOf([&] { params.Validate(10); });
  };
  EXPECT_EQ(message({}), "no error");
  EXPECT_EQ(message({.temperature = 2, .top_p = 1e-6f, .min_p = 1, .top_k = -1}), "no error");
  EXPECT_EQ(message({.temperature = 2.5f}), "temperature: expected 0 to 2, found 2.5");
  EXPECT_THAT(message({.temperature = kNan}), HasSubstr("temperature"));
  EXPECT_THAT(message({.top_p = 0}), HasSubstr("top_p"));
  EXPECT_THAT(message({.top_p = 1.1f}), HasSubstr("top_p"));
  EXPECT_THAT(message({.min_p = -0.1f}), HasSubstr("min_p"));
  EXPECT_THAT(message({.top_k = -2}), HasSubstr("top_k"));
  EXPECT_THAT(message({.repetition_penalty = 0}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(message({.repetition_penalty = kInf}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(message({.frequency_penalty = 2.1f}), HasSubstr("frequency_penalty"));
  EXPECT_THAT(message({.presence_penalty = -2.1f}), HasSubstr("presence_penalty"));
  EXPECT_THAT(message({.logit_bias = {{1, 101}}}), HasSubstr("logit_bias"));
  EXPECT_EQ(message({.logit_bias = {{10, 1}}}),
            "logit_bias: expected a token id below 10, found 10");
  EXPECT_THAT(message({.min_tokens = -1}), HasSubstr("min_tokens"));
  EXPECT_THAT(message({.stop_ids = {-1}}), HasSubstr("stop_ids"));
}

}  // namespace
}  // namespace deepinfer
