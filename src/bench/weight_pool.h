// Weights that look like a checkpoint's to a kernel and that no cache holds.
#pragma once

#include <cstdint>
#include <vector>

#include "base/arena.h"
#include "base/team.h"
#include "base/types.h"

namespace deepinfer {

// Bytes of a matrix with its scales, rounded up so that the next begins 512-byte aligned.
int64_t MatrixBytes(DType dtype, int64_t rows, int64_t cols);

// Seeded random codes: finite values, no e4m3 NaN, no subnormal bf16 or float.
void FillWeights(DType dtype, uint64_t seed, uint8_t* data, int64_t bytes);

// Matrices behind each other, each followed by its scales (2^-8 ... 2^7).
class WeightPool {
 public:
  // `team` fills the pool.
  WeightPool(int64_t bytes, Team& team);

  // `count` matrices in the order of memory; replaces what the pool held before.
  std::vector<WeightView> Matrices(DType dtype, int64_t rows, int64_t cols, int64_t count);

  const uint8_t* base() const { return reinterpret_cast<const uint8_t*>(arena_.base()); }
  int64_t bytes() const { return arena_.bytes(); }

 private:
  Team& team_;
  Arena arena_;
};

}  // namespace deepinfer
