// Plain types that every layer and every kernel file shares. No functions here: kernel files
// compiled for an instruction set include this header, and an inline function would let the linker
// pick that copy for everyone.
#pragma once

#include <stdint.h>

namespace deepinfer {

using TokenId = int32_t;

// How the elements of a stored tensor are laid out (spec 02 sections 2 and 4).
enum class DType : uint8_t {
  kBf16,       // [rows, cols] bfloat16
  kF32,        // [rows, cols] float
  kFp8Tile32,  // e4m3 [rows, cols], one ue8m0 scale per 32 x 32 tile
  kFp4Row32,   // e2m1 [rows, cols / 2 bytes], low nibble first, one ue8m0 scale per row and 32
               // columns
  kFp8Row32,   // e4m3 [rows, cols], one ue8m0 scale per row and 32 columns (Engram tables)
};

// A matrix of the checkpoint, in the checkpoint's own bytes. Does not own them; the mapping
// outlives every view. Tensors start at any byte of a file: data and scale may be unaligned.
struct WeightView {
  const uint8_t* data;
  const uint8_t* scale;  // ue8m0 bytes, or null for kBf16 and kF32
  DType dtype;
  int64_t rows, cols;          // elements, also for fp4 (where a row is cols / 2 bytes)
  int64_t row_stride_bytes;    // from one row of data to the next
  int64_t scale_stride_bytes;  // from one row of scales to the next (kFp8Tile32: per 32 rows)
  int32_t scale_row0;  // kFp8Tile32: row 0 is this row of its scale tile (0 unless a slice starts
                       // inside one)
};

}  // namespace deepinfer
