// Rotary position embedding on adjacent pairs (spec 01 section 2.2).
#pragma once

#include "ops/op.h"

namespace deepinfer {

// cos and sin of every row's angles: angle_i = fp32(fp32(positions[r] + offset) * freq[i]), cos and
// sin correct to fp32 with full range reduction (angles reach 10^6). Made once per step and used by
// all layers. positions + offset may be negative for rows that complete no group; such rows are
// never used and get position 0.
struct RopeTableArgs {
  const int32_t* n_rows;
  const int32_t* positions;  // [rows]
  int32_t offset;
  const float* freq;  // [half] radians per position
  int32_t half;       // rope_dim / 2
  float* cos;         // [rows, half]
  float* sin;         // [rows, half]
};

// Which angles a row is rotated by.
struct RowRotation {
  const float* cos;           // [table rows, dim / 2]
  const float* sin;           // [table rows, dim / 2]
  const int32_t* table_rows;  // [rows] row of the tables to use, or null for the row itself
  int32_t dim;                // values that are rotated: the last of a head
};

// Rotates the last rope.dim values of every head in place: (a, b) -> (a cos - b sin, a sin + b
// cos), or the inverse (sin negated); fp32 inside without contraction into FMA being required, then
// rounded to bf16 if `round`. Threads share columns (all heads of a row are its columns).
struct RopeArgs {
  const int32_t* n_rows;
  float* x;                 // [rows, heads, head_dim]
  int32_t heads, head_dim;  // head_dim even
  RowRotation rope;
  bool inverse, round;
};

}  // namespace deepinfer
