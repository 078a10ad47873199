#include "backend/cpu/limits.h"

#include <array>
#include <cstring>
#include <string_view>

namespace deepinfer {
namespace {

void ReadWords(const uint8_t* data, int64_t bytes, uint32_t* sink) {
  constexpr int kWords = 8;
  uint64_t seen[kWords] = {};
  for (int64_t i = 0; i < bytes; i += kWords * 8) {
    for (int k = 0; k < kWords; ++k) {
      uint64_t word;
      std::memcpy(&word, data + i + k * 8, 8);
      seen[k] ^= word;
    }
  }
  for (const uint64_t word : seen) *sink ^= static_cast<uint32_t>(word ^ word >> 32);
}

// What the scalar reference can do: a multiplication and an addition, eight chains.
double MultiplyAdd(int64_t rounds, float* sink) {
  constexpr int kChains = 8;
  float x[kChains] = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 8
    for (int k = 0; k < kChains; ++k) {
      x[k] = x[k] * 0.5f + 1.0f;
      asm("" : "+x"(x[k]));  // scalar instructions, as in the reference
    }
  }
  for (const float value : x) *sink += value;
  return 2.0 * kChains * static_cast<double>(rounds);
}

}  // namespace

LimitLoops LimitLoopsOf(const char* isa) {
  struct Level {
    std::string_view name;
    const LimitLoops* loops;
  };
  const std::array<Level, 3> levels = {
      {{"avx2", &cpu::kAvx2Limits}, {"avx512", &cpu::kAvx512Limits}, {"amx", &cpu::kAmxLimits}}};
  LimitLoops loops = {ReadWords, MultiplyAdd, nullptr, nullptr};
  if (isa == std::string_view("generic")) return loops;
  for (const Level& level : levels) {
    if (level.loops->read != nullptr) loops.read = level.loops->read;
    if (level.loops->fma != nullptr) loops.fma = level.loops->fma;
    if (level.loops->int8 != nullptr) loops.int8 = level.loops->int8;
    if (level.loops->tiles != nullptr) loops.tiles = level.loops->tiles;
    if (level.name == isa) break;
  }
  return loops;
}

}  // namespace deepinfer
