// Seeded random bytes that make a plausible model: no NaN code or scale, and products of inputs
// around 1 stay around 1.
#pragma once

#include <cstdint>
#include <span>

#include "config/layout.h"
#include "config/shape_table.h"

namespace deepinfer {

// A tensor and where its bytes go: byte `own.begin` to data + own.begin, and so on.
struct RandomTensor {
  const TensorSpec* spec;
  uint8_t* data;
  Range own;
};

// Fills all tensors with `threads` threads, each touching the same part of every tensor that
// kernels would give it. A byte depends on seed, order and shapes alone, not on what is wanted. As
// in the shape table, a scale stands behind its weight.
void FillRandom(std::span<const RandomTensor> tensors, uint64_t seed, int threads);

}  // namespace deepinfer
