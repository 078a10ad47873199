// Engram: hashed n-gram rows gated into the residual streams (spec 04).
#pragma once

#include "ops/op.h"

namespace deepinfer {

// y[r] = concatenation over col of table[row_ids[r, col]], dequantised (exact in bf16 barring
// under- and overflow, then rounded to bf16 if `round`). A NaN scale is reported as a fault. Dead
// rows are fetched too (their ids are valid).
struct EngramGatherArgs {
  const int32_t* n_rows;
  const int64_t* row_ids;  // [rows, columns]
  WeightView table;        // kFp8Row32 [table rows, dim]
  float* y;                // [rows, columns * dim]
  int32_t columns, dim;    // dim: multiple of 32
  int32_t layer;
  bool round;
  Fault* fault;
};

// Per stream s (spec 04 section 5), kv = key_0 .. key_{S-1}, value:
//   a = 1/sqrt(mean(H_s^2) + eps) * 1/sqrt(mean(key_s^2) + eps)
//   dot = sum_d H_s[d] * (q_weight[s,d] * k_weight[s,d]) * key_s[d] * a * hidden^-0.5
//   gate = sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot));   H_s = b(H_s + gate * value)
// Dead rows: gate 0 and H bit-unchanged, whatever value holds.
struct EngramGateArgs {
  const int32_t* n_rows;
  float* streams;           // [rows, S, hidden]
  const float* kv;          // [rows, (S + 1) * hidden]
  const uint8_t* q_weight;  // [S, hidden] bf16, any alignment
  const uint8_t* k_weight;  // [S, hidden] bf16, any alignment
  const uint8_t* dead;      // [rows] 1 = image position
  float* gate;              // [rows, S]
  int32_t n_streams, hidden;
  float eps;
  bool round;
};

}  // namespace deepinfer
