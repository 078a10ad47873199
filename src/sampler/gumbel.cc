#include "sampler/gumbel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sampler/row.h"

namespace deepinfer {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// A word with n ones in front stands for u < 1 - 2^-(n + 1), and -ln(-ln u) < -ln(1 - u): at most
// (n + 1) ln 2. The factor is ln 2 and a little more, against the rounding of the logarithms.
constexpr double kNoisePerBit = 0.69314718057;
constexpr double kMostNoise = 33 * kNoisePerBit;

double NoiseBound(uint32_t word) { return (std::countl_one(word) + 1) * kNoisePerBit; }

constexpr size_t kGroup = 64;  // tokens that are skipped together

}  // namespace

// The group with the largest logit goes first: it decides how much of the others can be skipped.
void GumbelMax::Add(std::span<const float> logits, int64_t first) {
  float largest = kMinusInf;
  size_t largest_at = 0;
  for (size_t i = 0; i < logits.size(); i += kGroup) {
    const float here = LargestOf(logits.subspan(i, std::min(kGroup, logits.size() - i)));
    if (here <= largest) continue;
    largest = here;
    largest_at = i;
  }
  const auto add = [&](size_t i) {
    AddGroup(logits.subspan(i, std::min(kGroup, logits.size() - i)),
             first + static_cast<int64_t>(i));
  };
  if (largest == kMinusInf || largest < least_) return;
  add(largest_at);
  for (size_t i = 0; i < logits.size(); i += kGroup) {
    if (i != largest_at) add(i);
  }
}

void GumbelMax::AddGroup(std::span<const float> logits, int64_t first) {
  if (LargestOf(logits) < least_) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= least_ && logits[i] != kMinusInf)
      AddOne(logits[i], first + static_cast<int64_t>(i));
  }
}

void GumbelMax::AddOne(float logit, int64_t id) {
  if (id / 4 != block_) {
    block_ = id / 4;
    words_ = RandomWords(key_, stream_, static_cast<uint32_t>(block_));
  }
  const uint32_t word = words_[static_cast<size_t>(id % 4)];
  if (double{logit} + NoiseBound(word) < value_) return;
  const double value = double{logit} + GumbelFromWord(word);
  if (value < value_ || (value == value_ && id > id_)) return;
  value_ = value;
  id_ = static_cast<TokenId>(id);
  least_ = std::nextafter(static_cast<float>(value - kMostNoise), kMinusInf);
}

}  // namespace deepinfer
