// Rows of the caches and the activation quantisers (spec 03 section 1).
//
// Packed rows are lossless: they hold the codes and scales that the quantiser produced.
#pragma once

#include "ops/op.h"
#include "ops/rope.h"

namespace deepinfer {

enum class RowFormat : uint8_t {
  kF32,         // cols floats; no rounding
  kFp8Block32,  // Q8:  cols e4m3 codes, then cols / 32 ue8m0 scales
  kFp4Block32,  // Q4u: cols / 2 bytes of e2m1 codes (low nibble = even column), then cols / 32
                // ue8m0 scales
  kFp4Block16,  // Q4e: cols / 2 bytes of e2m1 codes, then cols / 16 e4m3 scales
};

// Bytes of one stored row of `cols` values; cols is a multiple of 32. 512 columns: 2048, 528, 272
// and 288 bytes.
static inline int64_t RowBytes(RowFormat format, int64_t cols) {
  switch (format) {
    case RowFormat::kF32:
      return cols * 4;
    case RowFormat::kFp8Block32:
      return cols + cols / 32;
    case RowFormat::kFp4Block32:
      return cols / 2 + cols / 32;
    case RowFormat::kFp4Block16:
      return cols / 2 + cols / 16;
  }
  return 0;
}

// y = dequantised(quantised(x)), row by row. x == y allowed. kF32 is not a quantiser and is refused
// by the builder.
//
//   Q8 (kFp8Block32):
//     amax = max(max|x|, 1e-4)
//     scale = 2^ceil(log2(amax * fp32(1 / fp8_max)))
//     code = e4m3(x / scale)
//
//   Q4u (kFp4Block32):
//     amax = max(max|x|, 6 * 2^-126)
//     scale = 2^ceil(log2(amax * fp32(1 / 6)))
//     code = e2m1(x / scale)
//
//   Q4e (kFp4Block16):
//     amax = max(max|x|, 6 * 2^-9)
//     scale = e4m3(min(amax / 6, 448))
//     code = e2m1(x / scale)
//
// Threads share columns. Codes round to nearest even and saturate. A block with a NaN gets a NaN
// scale (255; Q4e: 0x7f), so that all its values are NaN; its codes are unspecified. Infinities
// saturate.
struct QuantRowsArgs {
  const int32_t* n_rows;
  const float* x;  // [rows, cols]
  float* y;        // [rows, cols]
  int32_t cols;    // multiple of 32
  RowFormat format;
  float fp8_max;  // 448, or 224 with trn2; kFp8Block32 only
};

// Writes row r of x into row slots[r] of a cache, quantised to its format; before that normed as by
// RmsNormArgs if norm_weight is set, then rotated as one head of RopeArgs if rope.cos is.
struct StoreRowsArgs {
  const int32_t* n_rows;
  const float* x;        // [rows, cols]
  const int64_t* slots;  // [rows]
  uint8_t* cache;        // rows of RowBytes(format, cols)
  int32_t cols;          // multiple of 32
  RowFormat format;
  float fp8_max;
  const uint8_t* norm_weight = nullptr;  // [cols] bf16, any alignment, or null
  float eps = 0;
  RowRotation rope = {};
  bool round = false;  // norm and rotation each round to bf16
};

// y[r] = x[rows[r]].
struct GatherRowsArgs {
  const int32_t* n_rows;
  const int32_t* rows;  // [n_rows]
  const float* x;
  float* y;  // [n_rows, cols]
  int32_t cols;
};

}  // namespace deepinfer
