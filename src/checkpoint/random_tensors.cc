#include "checkpoint/random_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/team.h"

namespace deepinfer {

namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // a multiple of every element size

// A word of the tensor is (random & keep) + add: whole elements, since both repeat per element.
struct Pattern {
  uint64_t keep, add;
};

uint64_t Repeat8(uint64_t byte) { return byte * 0x0101010101010101u; }
uint64_t Repeat16(uint64_t half) { return half * 0x0001000100010001u; }
uint64_t Repeat32(uint64_t word) { return word * 0x0000000100000001u; }

// Even exponent field of floats from 2^e up to 2^(e + 2), about `size` in the mean.
uint64_t ExponentField(double size) {
  return static_cast<uint64_t>(127 + std::lround(std::log2(size) - 0.7)) & ~uint64_t{1};
}

// Size of the values of an unscaled tensor.
double ValueSize(const TensorSpec& spec) {
  if (spec.rank == 2) return 1 / std::sqrt(static_cast<double>(spec.shape[1]));
  return spec.name.ends_with("norm.weight") ? 1 : 1.0 / 16;
}

// fp8 codes below 2 (rms 0.63), any fp4 codes (rms 2.9); the scale makes up for both.
Pattern ScalePattern(const TensorSpec& weight, int64_t scale_cols) {
  const double rms = weight.dtype == "I8" ? 2.9 : 0.63;
  const double size = 1 / std::sqrt(static_cast<double>(32 * scale_cols));
  const auto exponent = static_cast<uint64_t>(127 + std::lround(std::log2(size / rms) - 0.7));
  return {Repeat8(1), Repeat8(exponent)};
}

Pattern PatternOf(const TensorSpec& spec, const TensorSpec* before) {
  if (spec.dtype == "F8_E8M0") return ScalePattern(*before, spec.shape[1]);
  if (spec.dtype == "F8_E4M3") return {Repeat8(0xbf), 0};
  if (spec.dtype == "I8") return {~uint64_t{0}, 0};
  const bool positive = spec.rank == 1 && spec.name.ends_with("norm.weight");
  const uint64_t field = ExponentField(ValueSize(spec));
  if (spec.dtype == "BF16") return {Repeat16(positive ? 0x00ff : 0x80ff), Repeat16(field << 7)};
  return {Repeat32(positive ? 0x00ffffff : 0x80ffffff), Repeat32(field << 23)};
}

// Bytes `own` of a piece.
void FillPiece(uint8_t* data, Range own, const Pattern& pattern, uint64_t state) {
  int64_t i = 0;
  for (; i + 8 <= own.begin; i += 8) NextRandom(&state);
  for (; i < own.end; i += 8) {
    const uint64_t word = (NextRandom(&state) & pattern.keep) + pattern.add;
    const int64_t begin = std::max(i, own.begin), end = std::min(i + 8, own.end);
    if (end - begin == 8)
      std::memcpy(data + i, &word, 8);
    else
      std::memcpy(data + begin, reinterpret_cast<const uint8_t*>(&word) + (begin - i),
                  static_cast<size_t>(end - begin));
  }
}

struct FillJob {
  std::span<const RandomTensor> tensors;
  std::vector<Pattern> patterns;
  uint64_t seed;
  int threads;
};

void FillShare(void* context, int tid) {
  const FillJob& job = *static_cast<const FillJob*>(context);
  for (size_t t = 0; t < job.tensors.size(); ++t) {
    const Range own = job.tensors[t].own;
    if (own.size() == 0) continue;
    const int64_t first = own.begin / kPieceBytes;
    const int64_t n = (own.end + kPieceBytes - 1) / kPieceBytes - first;
    for (int64_t p = first + n * tid / job.threads; p < first + n * (tid + 1) / job.threads; ++p) {
      uint64_t state = job.seed;
      state = NextRandom(&state) + t;
      state = NextRandom(&state) + static_cast<uint64_t>(p);
      const int64_t begin = p * kPieceBytes;
      const Range in_piece = {std::max(own.begin - begin, int64_t{0}),
                              std::min(own.end - begin, kPieceBytes)};
      FillPiece(job.tensors[t].data + begin, in_piece, job.patterns[t], NextRandom(&state));
    }
  }
}

}  // namespace

void FillRandom(std::span<const RandomTensor> tensors, uint64_t seed, int threads) {
  FillJob job{tensors, {}, seed, threads};
  for (size_t t = 0; t < tensors.size(); ++t) {
    job.patterns.push_back(PatternOf(*tensors[t].spec, t > 0 ? tensors[t - 1].spec : nullptr));
  }
  Team team(threads);
  team.Run(FillShare, &job);
}

}  // namespace deepinfer
