// Matrix products with checkpoint weights (spec 01 section 0, spec 03 section 1.4).
#pragma once

#include "ops/op.h"

namespace deepinfer {

enum class WeightDecode : uint8_t {
  kAsStored,
  kHalvedFp8,  // fp8 codes are first halved and rounded to e4m3, the scale doubled (spec 03 section
               // 5)
  kNarrowedF32,  // fp32 weights are first rounded to bf16
};

// Per thread: 128 rows of bf16 inputs, columns rounded up to a multiple of 32.
static inline int64_t LinearScratchFloats(int64_t cols) { return (cols + 31) / 32 * 32 * 128 / 2; }

// y[r, o] = sum_k x[r, k] * w[o, k], in fp32 or better, rounded once to bf16 if `round`.
// The order of the sum over k depends on w alone.
//
// group_out > 0 makes the product block-diagonal: output o reads the columns (o / group_out) *
// w.cols ... of its row of x (the grouped output projection wo_a). Otherwise every output reads
// columns 0 ... w.cols.
// Threads share outputs: as the kernel likes, or as columns (SplitColumns) if `share_columns`.
struct LinearArgs {
  const int32_t* n_rows;
  const float* x;  // [rows, x_stride]
  int64_t x_stride;
  WeightView w;  // [outputs, inputs]
  float* y;      // [rows, y_stride]
  int64_t y_stride;
  int32_t group_out;
  WeightDecode decode;
  bool round;
  bool share_columns = false;
  // Every value of x lies on the bf16 grid: kernels may multiply in bf16 where the weights are bf16
  // values too (any dtype but kF32). They then read subnormal bf16 values as zero.
  bool bf16_inputs = false;
  // Per thread: scratch + tid * scratch_stride, 64-byte aligned; at least w.cols floats, with
  // bf16_inputs LinearScratchFloats(w.cols).
  float* scratch;
  int64_t scratch_stride;  // floats
};

}  // namespace deepinfer
