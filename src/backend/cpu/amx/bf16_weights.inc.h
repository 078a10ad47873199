// Checkpoint weights to bf16, scale included. Included inside namespace deepinfer::cpu::amx, after
// weight_rows.inc.h and bf16_codes.inc.h.

// Columns [c, c + n) of a row of any weight but kF32; c is a multiple of 32, n <= kGroup. Writes n
// words rounded up to a multiple of 64; up to the next multiple of 32 they are zero.
static void DecodeToBf16(const WeightView& w, WeightDecode decode, int64_t row, int64_t c,
                         int64_t n, uint16_t* y) {
  const uint8_t* data = w.data + row * w.row_stride_bytes;
  if (w.dtype == DType::kBf16) {
    memcpy(y, data + 2 * c, static_cast<size_t>(2 * n));
    memset(y + n, 0, static_cast<size_t>((n + 31) / 32 * 32 - n) * 2);
    return;
  }
  const uint8_t* scale = ScalesAt(w, row, c);
  if (ScalesAreModerate(scale, n / 32)) {
    if (w.dtype == DType::kFp4Row32) return Fp4ToBf16(data + c / 2, scale, n, y);
    if (Fp8ToBf16(data + c, scale, n, decode == WeightDecode::kHalvedFp8, y)) return;
  }
  alignas(64) float values[kGroup];
  DecodeWeights(w, decode, row, c, n, values);
  UpperHalves(values, n, y);
}
