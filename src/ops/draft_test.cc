// Draft tokens against the sampler, which draws what drafts are compared with.
#include "ops/draft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/kernel_table.h"
#include "sampler/sampling.h"

namespace deepinfer {
namespace {

constexpr int kVocab = 1003, kSeqs = 3, kBlock = 2;

struct Example {
  explicit Example(uint32_t variant) {
    std::mt19937 random(variant);
    std::normal_distribution<float> normal(0, 3);
    for (float& l : logits) l = normal(random);
    for (float& b : bias) b = normal(random);
  }
  // The token of every sequence at `slot`, drawn by `threads` threads.
  std::vector<int32_t> Draw(int32_t slot, int threads) {
    std::vector<DraftCandidate> candidates(static_cast<size_t>(kSeqs * threads));
    std::vector<int32_t> previous(kSeqs, -1), tokens(kSeqs * kBlock, -1);
    const int32_t n_seqs = kSeqs;
    std::vector<float> changed = logits;
    const DraftTokenArgs a{
        .n_seqs = &n_seqs,
        .logits = changed.data(),
        .bias = bias.data(),
        .positions = positions.data(),
        .sampling = {temperature.data(), seed.data(), sample.data(), stream.data()},
        .candidates = candidates.data(),
        .previous = previous.data(),
        .tokens = tokens.data(),
        .block = kBlock,
        .slot = slot,
        .vocab = kVocab};
    for (int t = 0; t < threads; ++t) ReferenceKernels().draft_choose(a, {t, threads});
    for (int t = 0; t < threads; ++t) ReferenceKernels().draft_merge(a, {t, threads});
    for (int s = 0; s < kSeqs; ++s)
      EXPECT_EQ(tokens[static_cast<size_t>(s * kBlock + slot)], previous[static_cast<size_t>(s)]);
    after = changed;
    return previous;
  }
  // What the sampler draws from the same logits.
  TokenId Expected(int s, int slot) const {
    const auto row = static_cast<size_t>(s * kBlock + slot) * kVocab;
    std::vector<float> l(after.begin() + static_cast<std::ptrdiff_t>(row),
                         after.begin() + static_cast<std::ptrdiff_t>(row) + kVocab);
    const auto i = static_cast<size_t>(s);
    if (temperature[i] == 0) return ArgMax(l);
    for (float& x : l) x /= temperature[i];
    const auto position =
        static_cast<uint32_t>(positions[static_cast<size_t>(s * kBlock + slot)] + 1);
    return GumbelArgMax(l, {seed[i], sample[i], position}, static_cast<Stream>(stream[i]));
  }
  std::vector<float> logits = std::vector<float>(kSeqs * kBlock * kVocab);
  std::vector<float> bias = std::vector<float>(kSeqs * kVocab), after;
  std::vector<int32_t> positions = {10, 11, 500, 501, 7, 8};
  std::vector<float> temperature = {0, 0.7f, 1.3f};
  std::vector<uint64_t> seed = {1, 2, uint64_t{3} << 40};
  std::vector<uint32_t> sample = {0, 1, 2}, stream = {0, 0, 2};
};

TEST(DraftToken, IsWhatTheSamplerDraws) {
  for (uint32_t round = 0; round < 20; ++round) {
    Example e(round);
    for (int32_t slot : {0, 1}) {
      for (int threads : {1, 2, 5, 17}) {
        const std::vector<int32_t> tokens = e.Draw(slot, threads);
        for (int s = 0; s < kSeqs; ++s)
          EXPECT_EQ(tokens[static_cast<size_t>(s)], e.Expected(s, slot)) << "threads " << threads;
      }
    }
  }
}

TEST(DraftToken, AddsTheTransitionToItsOwnSlotOnly) {
  Example e(3);
  e.Draw(1, 2);
  for (int s = 0; s < kSeqs; ++s) {
    for (int t = 0; t < kVocab; ++t) {
      const auto first = static_cast<size_t>((s * kBlock) * kVocab + t), second = first + kVocab;
      EXPECT_EQ(e.after[first], e.logits[first]);
      EXPECT_EQ(e.after[second], e.logits[second] + e.bias[static_cast<size_t>(s * kVocab + t)]);
    }
  }
}

TEST(DraftToken, NanIsNeverChosenAndTiesGoToTheLowerId) {
  Example e(4);
  std::fill(e.bias.begin(), e.bias.end(), 0.0f);
  std::fill(e.logits.begin(), e.logits.end(), std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(e.Draw(0, 3), (std::vector<int32_t>{0, 0, 0}));
  e.logits[700] = 1;
  e.logits[900] = 1;
  EXPECT_EQ(e.Draw(0, 3)[0], 700);
  EXPECT_EQ(e.Draw(0, 1)[0], 700);
}

TEST(TransitionInput, JoinsTheRowAndTheEmbeddingOfTheTokenBefore) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};  // two sequences, block 2, hidden 2
  std::vector<uint16_t> embed = {0x3f80, 0x4000, 0xbf80, 0x4040};  // 1 2 / -1 3
  const std::vector<int32_t> previous = {1, 0};
  std::vector<float> y(16, -9);
  const int32_t n_seqs = 2;
  TransitionInputArgs a{};
  a.n_seqs = &n_seqs;
  a.x = x.data();
  a.previous = previous.data();
  a.embed.data = reinterpret_cast<const uint8_t*>(embed.data());
  a.embed.dtype = DType::kBf16;
  a.embed.rows = a.embed.cols = 2;
  a.embed.row_stride_bytes = 4;
  a.y = y.data();
  a.block = 2;
  a.slot = 1;
  a.hidden = 2;
  ReferenceKernels().transition_input(a, {0, 1});
  EXPECT_EQ(y, (std::vector<float>{-9, -9, -9, -9, 3, 4, -1, 3, -9, -9, -9, -9, 7, 8, 1, 2}));
}

TEST(Tap, IsTheRoundedMeanOfTheStreams) {
  const std::vector<float> streams = {1, 2, 3, 1 + 0x1p-9f, 5, -2};  // one row, 3 streams of 2
  std::vector<float> y(5, 7);
  const int32_t n_rows = 1;
  TapArgs a{&n_rows, streams.data(), y.data() + 1, 5, 3, 2, false};
  ReferenceKernels().tap(a, {0, 1});
  EXPECT_EQ(y, (std::vector<float>{7, 3, (2 + (1 + 0x1p-9f) - 2) / 3, 7, 7}));
  a.round = true;
  ReferenceKernels().tap(a, {0, 1});
  EXPECT_EQ(y[2], 0.333984375f);
}

}  // namespace
}  // namespace deepinfer
