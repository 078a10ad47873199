// Hyper-connections over residual streams, single-pass form (spec 01 section 4). S = n_streams, at
// most 8.
#pragma once

#include "ops/op.h"

namespace deepinfer {

// From raw = fn . z (a linear with fp32 weights, z = the flattened streams) to the three mixes of
// this sublayer:
//   m = raw * 1 / sqrt(mean(z^2) + rms_eps)
//   pre[k] = sigmoid(m[k] * scale[0] + base[k]) + hc_eps
//   post[k] = 2 sigmoid(m[S + k] * scale[1] + base[S + k])
//   comb[j, k] = m[2S + jS + k] * scale[2] + base[2S + jS + k]
// comb then: softmax over k, + hc_eps, then alternately columns and rows divided by (their sum +
// hc_eps): `iterations` column steps and iterations - 1 row steps, columns last. Threads share
// rows.
struct MixArgs {
  const int32_t* n_rows;
  const float* streams;  // [rows, S, hidden]
  const float* raw;      // [rows, (2 + S) S]
  const uint8_t* base;   // [(2 + S) S] fp32, any alignment
  const uint8_t* scale;  // [3] fp32, any alignment: pre, post, comb
  float* pre;            // [rows, S]
  float* post;           // [rows, S]
  float* comb;           // [rows, S from, S to]
  int32_t n_streams, hidden, iterations;
  float hc_eps, rms_eps;
};

// y = sum_s pre[s] * streams[s], rounded to bf16 if `round`. Threads share columns.
struct CollapseArgs {
  const int32_t* n_rows;
  const float* streams;  // [rows, S, hidden]
  const float* pre;      // [rows, S]
  float* y;              // [rows, hidden]
  int32_t n_streams, hidden;
  bool round;
};

// streams[j] = post[j] * out + sum_i comb[i, j] * streams[i], rounded to bf16 if `round`. In place.
// Threads share columns.
struct ExpandArgs {
  const int32_t* n_rows;
  const float* out;   // [rows, hidden]
  const float* post;  // [rows, S]
  const float* comb;  // [rows, S from, S to]
  float* streams;     // [rows, S, hidden]
  int32_t n_streams, hidden;
  bool round;
};

}  // namespace deepinfer
