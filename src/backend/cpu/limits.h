// Loops that run at a limit of the machine: what kernels are measured against.
#pragma once

#include <stdint.h>

namespace deepinfer {

constexpr int64_t kReadUnit = 512;  // bytes

// Operands of the tile loop: 32 weight rows and 64 rows of x, 5120 columns of bf16 each: 960 KiB,
// which a second level cache holds and a first level cache does not.
constexpr int64_t kTileSteps = 5120 / 32;
constexpr int64_t kTileOperandWords = (2 + 4) * kTileSteps * 16 * 32;

// One thread each. A null entry: the level has no such instruction. `sink` keeps the compiler from
// leaving out the work.
struct LimitLoops {
  // Reads all of [data, data + bytes) with the widest loads of the level; bytes is a multiple of
  // kReadUnit.
  void (*read)(const uint8_t* data, int64_t bytes, uint32_t* sink);
  // Independent fused multiply-adds of floats in registers. Returns the number of multiplications
  // and additions.
  double (*fma)(int64_t rounds, float* sink);
  // The same with products of four int8 added to int32.
  double (*int8)(int64_t rounds, int32_t* sink);
  // 2 x 2 tiles of bf16 products over the operands [kTileOperandWords], 64-byte aligned.
  double (*tiles)(int64_t rounds, const uint16_t* operands, float* sink);
};

// The loops of a level of SelectKernels ("avx512"); what it does not have comes from the next lower
// level. The CPU must be able to run the level.
LimitLoops LimitLoopsOf(const char* isa);

namespace cpu {

extern const LimitLoops kAvx2Limits, kAvx512Limits, kAmxLimits;

}  // namespace cpu
}  // namespace deepinfer
