// Random checkpoint weights for the tests of linear and the experts.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "backend/cpu/kernel_test.h"

namespace deepinfer {

inline int64_t BytesOfColumns(DType dtype, int64_t cols) {
  switch (dtype) {
    case DType::kF32:
      return 4 * cols;
    case DType::kBf16:
      return 2 * cols;
    case DType::kFp4Row32:
      return cols / 2;
    default:
      return cols;
  }
}

// A weight whose data and scales end at a page that cannot be read. Data starts at an odd address
// wherever its size is odd.
struct TestWeight {
  WeightView view;
  std::unique_ptr<GuardedBuffer> data, scale;
};

inline TestWeight MakeWeight(DType dtype, int64_t rows, int64_t cols,
                             const std::vector<uint8_t>& data, const std::vector<uint8_t>& scale) {
  TestWeight w;
  w.data = std::make_unique<GuardedBuffer>(data);
  if (!scale.empty()) w.scale = std::make_unique<GuardedBuffer>(scale);
  w.view = {.data = w.data->bytes(),
            .scale = scale.empty() ? nullptr : w.scale->bytes(),
            .dtype = dtype,
            .rows = rows,
            .cols = cols,
            .row_stride_bytes = BytesOfColumns(dtype, cols),
            .scale_stride_bytes = scale.empty() ? 0 : cols / 32,
            .scale_row0 = 0};
  return w;
}

enum class Values {
  kAny,    // sums round
  kExact,  // small whole numbers, one scale: every sum of products with whole numbers is exact
};

// Random finite weights. A stride that is no multiple of anything (one byte between rows) makes
// every row misaligned.
inline TestWeight RandomWeight(DType dtype, int64_t rows, int64_t cols, Values values,
                               Random* random) {
  const bool exact = values == Values::kExact,
             scaled = dtype != DType::kBf16 && dtype != DType::kF32;
  const int64_t row_bytes = BytesOfColumns(dtype, cols), stride = row_bytes + 1;
  std::vector<uint8_t> data(static_cast<size_t>(rows * stride - 1));
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* row = data.data() + r * stride;
    for (int64_t k = 0; k < cols; ++k) {
      if (dtype == DType::kFp4Row32) {
        if (k % 2 == 0)
          row[k / 2] = static_cast<uint8_t>(
              random->Int(0, 255));  // halves of whole numbers: exact as they are
      } else if (scaled) {
        const int code = random->Int(0, 255);
        row[k] = exact ? FloatToE4m3(static_cast<float>(random->Int(-8, 8)))
                       : static_cast<uint8_t>((code & 0x7f) == 0x7f ? code - 1 : code);
      } else {
        const float x = exact ? static_cast<float>(random->Int(-8, 8)) : random->Normal();
        const uint16_t narrow = FloatToBf16(x);
        if (dtype == DType::kBf16) std::memcpy(row + 2 * k, &narrow, 2);
        if (dtype == DType::kF32) std::memcpy(row + 4 * k, &x, 4);
      }
    }
  }
  std::vector<uint8_t> scale;
  if (scaled) {
    const int64_t scale_rows = dtype == DType::kFp8Tile32 ? (rows + 31 + 31) / 32 : rows;
    scale.resize(static_cast<size_t>(scale_rows * (cols / 32)));
    for (uint8_t& s : scale) s = static_cast<uint8_t>(exact ? 127 : random->Int(119, 128));
  }
  TestWeight w = MakeWeight(dtype, rows, cols, data, scale);
  w.view.row_stride_bytes = stride;
  return w;
}

inline std::vector<float> RandomActivations(int64_t n, Values values, Random* random) {
  return values == Values::kExact ? random->Integers(n, 4) : random->Normals(n);
}

// x through the Q8 quantiser of the reference.
inline std::vector<float> Quantised(const std::vector<float>& x, int64_t cols,
                                    float fp8_max = 448) {
  std::vector<float> y(x.size());
  const auto n_rows = static_cast<int32_t>(static_cast<int64_t>(x.size()) / cols);
  const QuantRowsArgs args = {.n_rows = &n_rows,
                              .x = x.data(),
                              .y = y.data(),
                              .cols = static_cast<int32_t>(cols),
                              .format = RowFormat::kFp8Block32,
                              .fp8_max = fp8_max};
  ReferenceKernels().quant_rows(args, {0, 1});
  return y;
}

}  // namespace deepinfer
