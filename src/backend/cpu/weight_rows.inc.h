// Rows of checkpoint weights as floats, and how many bytes they are. Included inside namespace
// deepinfer::cpu::<isa>, after row_codec.inc.h and the instruction set's weights_*.inc.h.

// The scale of column c, a multiple of 32, of a row of a quantised weight.
static inline const uint8_t* ScalesAt(const WeightView& w, int64_t row, int64_t c) {
  const int64_t scale_row = w.dtype == DType::kFp8Tile32 ? (row + w.scale_row0) / 32 : row;
  return w.scale + scale_row * w.scale_stride_bytes + c / 32;
}

// Columns [c, c + n) of a weight row as floats; c is a multiple of 32. Writes n floats rounded up
// to a multiple of 64.
static void DecodeWeights(const WeightView& w, WeightDecode decode, int64_t row, int64_t c,
                          int64_t n, float* y) {
  const uint8_t* data = w.data + row * w.row_stride_bytes;
  switch (w.dtype) {
    case DType::kBf16:
      for (int64_t k = 0; k < n; k += kLanes)
        Store(y + k, LoadBf16First(data + 2 * (c + k), n - k));
      return;
    case DType::kF32:
      memcpy(y, data + 4 * c, static_cast<size_t>(n) * 4);
      if (decode == WeightDecode::kNarrowedF32) {
        for (int64_t k = 0; k < n; k += kLanes)
          StoreFirst(y + k, RoundBf16(LoadFirst(y + k, n - k)), n - k);
      }
      return;
    case DType::kFp8Tile32:
    case DType::kFp8Row32:
      DecodeFp8(data + c, ScalesAt(w, row, c), n, decode == WeightDecode::kHalvedFp8, y);
      return;
    case DType::kFp4Row32:
      DecodeFp4(data + c / 2, ScalesAt(w, row, c), n, y);
      return;
  }
}

static inline int64_t WeightBytes(DType dtype, int64_t cols) {
  return dtype == DType::kF32        ? 4 * cols
         : dtype == DType::kBf16     ? 2 * cols
         : dtype == DType::kFp4Row32 ? cols / 2
                                     : cols;
}

// Asks for the same columns of the next panel while this one is multiplied: one panel is too short
// a stretch of memory for the CPU to see the pattern. A prefetch past the end of the tensor does
// nothing.
__attribute__((always_inline)) static inline void PrefetchWeights(const WeightView& w, int64_t row,
                                                                  int64_t c, int64_t n) {
  Prefetch(w.data + row * w.row_stride_bytes + WeightBytes(w.dtype, c), WeightBytes(w.dtype, n));
}
