// The token that wins is that of adding the noise to every logit, whatever could be skipped.
#include "sampler/gumbel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace deepinfer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Best {
  double value = -std::numeric_limits<double>::infinity();
  TokenId id = -1;
};

Best Plain(std::span<const float> logits, const DrawKey& key, Stream stream) {
  Best best;
  for (size_t t = 0; t < logits.size(); ++t) {
    const uint32_t word = RandomWords(key, stream, static_cast<uint32_t>(t / 4))[t % 4];
    const double value = double{logits[t]} + GumbelFromWord(word);
    if (value > best.value) best = {value, static_cast<TokenId>(t)};
  }
  return best;
}

// In pieces of this many tokens, the last piece first if `backwards`.
void ExpectPlain(const std::vector<float>& logits, const DrawKey& key, size_t piece,
                 bool backwards) {
  const Best expected = Plain(logits, key, Stream::kDraft);
  GumbelMax found(key, Stream::kDraft);
  const size_t n = (logits.size() + piece - 1) / piece;
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = (backwards ? n - 1 - i : i) * piece;
    found.Add(std::span(logits).subspan(begin, std::min(piece, logits.size() - begin)),
              static_cast<int64_t>(begin));
  }
  ASSERT_EQ(found.id(), expected.id) << "seed " << key.seed << " piece " << piece;
  ASSERT_EQ(found.value(), expected.value);
}

TEST(GumbelMax, IsTheLargestOfAllSumsAtAnySpread) {
  for (uint32_t round = 0; round < 60; ++round) {
    std::mt19937 random(round);
    // From equal logits, where the noise decides, to a few that stand out.
    const float spread = std::vector<float>{0, 0.1f, 1, 3, 8, 1000}[round % 6];
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> logits(4099);
    for (float& l : logits) l = spread * normal(random);
    const DrawKey key{round, round % 3, 7 + round};
    for (size_t piece : {logits.size(), size_t{1024}, size_t{64}, size_t{37}})
      ExpectPlain(logits, key, piece, round % 2 == 1);
  }
}

TEST(GumbelMax, PassesOverWhatCannotBeDrawn) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(777);
  for (float& l : logits) l = normal(random);
  for (size_t i = 0; i < logits.size(); i += 3) logits[i] = i % 2 == 0 ? -kInf : kNan;
  for (uint64_t seed = 0; seed < 50; ++seed) ExpectPlain(logits, {seed, 0, 3}, 100, false);
  for (float nothing : {-kInf, kNan}) {
    GumbelMax none({1, 0, 0}, Stream::kTarget);
    none.Add(std::vector<float>(200, nothing), 0);
    EXPECT_EQ(none.id(), -1);
  }
}

TEST(GumbelMax, EqualSumsGoToTheLowerIdInAnyOrder) {
  std::vector<float> logits(300, -kInf);
  logits[70] = logits[250] = 1e30f;  // noise is lost in it
  for (size_t piece : {size_t{300}, size_t{64}}) {
    for (bool backwards : {false, true}) ExpectPlain(logits, {9, 0, 1}, piece, backwards);
  }
  logits[60] = logits[80] = kInf;
  ExpectPlain(logits, {9, 0, 1}, 64, true);
}

}  // namespace
}  // namespace deepinfer
