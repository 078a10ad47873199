// RMS norm and the sum that joins routed and shared experts.
#pragma once

#include "ops/op.h"

namespace deepinfer {

// y = w * (x / sqrt(mean(x^2) + eps)), all in fp32, rounded once to bf16 if `round` (spec 01
// section 2.1). With `quantised`, also the Q8 values of y (ops/rows.h). Threads share the columns
// of few rows, each reading the whole row: y must not overlap x.
struct RmsNormArgs {
  const int32_t* n_rows;
  const float* x;         // [rows, cols]
  const uint8_t* weight;  // [cols] bf16, any alignment
  float* y;               // [rows, cols]
  int32_t cols;
  float eps;
  bool round;
  float* quantised = nullptr;  // [rows, cols] or null; cols is then a multiple of 32
  float fp8_max = 0;
};

// y = a + b, rounded to bf16 if `round` (spec 01 section 7.4). y == a or y == b allowed. Threads
// share columns.
struct AddArgs {
  const int32_t* n_rows;
  const float* a;
  const float* b;
  float* y;
  int32_t cols;
  bool round;
};

}  // namespace deepinfer
