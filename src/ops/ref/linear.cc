#include <algorithm>
#include <cmath>

#include "ops/ref/reference.h"

namespace deepinfer::ref {

namespace {

// Value of every fp8 code after halving the code and doubling the scale.
const std::array<float, 256>& HalvedE4m3Values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (size_t code = 0; code < 256; ++code)
      values[code] = E4m3ToFloat(FloatToE4m3(kE4m3Values[code] / 2)) * 2;
    return values;
  }();
  return kValues;
}

}  // namespace

void DecodeWeightRow(const WeightView& w, int64_t row, WeightDecode decode, float* y) {
  const uint8_t* data = w.data + row * w.row_stride_bytes;
  switch (w.dtype) {
    case DType::kBf16:
      for (int64_t k = 0; k < w.cols; ++k) y[k] = LoadBf16(data + 2 * k);
      return;
    case DType::kF32:
      for (int64_t k = 0; k < w.cols; ++k) {
        y[k] = RoundIf(decode == WeightDecode::kNarrowedF32, LoadF32(data + 4 * k));
      }
      return;
    case DType::kFp8Tile32:
    case DType::kFp8Row32: {
      const std::array<float, 256>& values =
          decode == WeightDecode::kHalvedFp8 ? HalvedE4m3Values() : kE4m3Values;
      const int64_t scale_row = w.dtype == DType::kFp8Row32 ? row : (row + w.scale_row0) / 32;
      const uint8_t* scale = w.scale + scale_row * w.scale_stride_bytes;
      for (int64_t k = 0; k < w.cols; ++k) y[k] = values[data[k]] * Ue8m0ToFloat(scale[k / 32]);
      return;
    }
    case DType::kFp4Row32: {
      const uint8_t* scale = w.scale + row * w.scale_stride_bytes;
      for (int64_t k = 0; k < w.cols; ++k) {
        const uint8_t code = k % 2 == 0 ? data[k / 2] & 15 : data[k / 2] >> 4;
        y[k] = E2m1ToFloat(code) * Ue8m0ToFloat(scale[k / 32]);
      }
      return;
    }
  }
}

float Dot(const float* x, const float* w, int64_t cols) {
  double sum[4] = {};  // four chains of additions: one would wait for itself
  int64_t k = 0;
  for (; k + 4 <= cols; k += 4) {
    for (int i = 0; i < 4; ++i) sum[i] += double{x[k + i]} * double{w[k + i]};
  }
  for (; k < cols; ++k) sum[0] += double{x[k]} * double{w[k]};
  return static_cast<float>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void Linear(const LinearArgs& a, Work w) {
  const Span part = SplitWork(a.w.rows, a.share_columns ? 32 : 1, w);
  float* row = a.scratch + w.tid * a.scratch_stride;
  for (int64_t o = part.begin; o < part.end; ++o) {
    DecodeWeightRow(a.w, o, a.decode, row);
    const int64_t first = a.group_out > 0 ? o / a.group_out * a.w.cols : 0;
    for (int64_t r = 0; r < *a.n_rows; ++r) {
      const float sum = Dot(a.x + r * a.x_stride + first, row, a.w.cols);
      a.y[r * a.y_stride + o] = RoundIf(a.round, sum);
    }
  }
}

}  // namespace deepinfer::ref
