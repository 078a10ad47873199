// Experts of fp4 weights on quantised inputs: sums of exact integers, at every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/matrix_test_util.h"

namespace deepinfer {
namespace {

constexpr int64_t kMaxRows = 300;

// Tables whose experts are sums of exact integers. The tiles of amx add products in floats.
std::vector<const KernelTable*> ExactTables() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : VectorTables()) {
    if (std::string(table->isa) != "amx") tables.push_back(table);
  }
  return tables;
}

// y = w . x for the rows of x, as the down product of one expert.
std::vector<float> Product(const KernelTable& table, const WeightView& w, const float* x,
                           int32_t n_rows, int threads = 1) {
  const int64_t stride = ExpertScratchFloats(w.cols);
  const GuardedFloats scratch(std::vector<float>(static_cast<size_t>(threads * stride)));
  const GuardedFloats y(std::vector<float>(static_cast<size_t>(n_rows * w.rows), NAN));
  std::vector<int32_t> rows(static_cast<size_t>(n_rows));
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = static_cast<int32_t>(r);
  int32_t n_active = 1, active = 0, begin[2] = {0, n_rows};
  const ExpertWeights expert = {w, w, w};
  const DownArgs args = {.n_rows = &n_rows,
                         .pairs = {&n_active, &active, begin, rows.data(), nullptr},
                         .experts = &expert,
                         .act = x,
                         .y = y.data(),
                         .hidden = static_cast<int32_t>(w.rows),
                         .inter = static_cast<int32_t>(w.cols),
                         .round = false,
                         .fp8_inputs = true,
                         .scratch = scratch.data(),
                         .scratch_stride = stride};
  RunParts(table.down, args, threads);
  return y.values();
}

// Rows that meet everything a quantised block can be: magnitudes from 2^-20 (below the floor of the
// scale) to 2^20, zeros, minus zeros, one large value among values of subnormal code.
std::vector<float> QuantisedRows(int64_t n_rows, int64_t cols, float fp8_max, Random* random) {
  std::vector<float> x = random->Normals(n_rows * cols);
  for (size_t block = 0; block < x.size(); block += 32) {
    const int kind = random->Int(0, 9), exponent = random->Int(-20, 20);
    for (size_t k = block; k < block + 32; ++k) {
      if (kind == 0) x[k] = 0.0f;
      if (kind == 1) x[k] = -0.0f;
      if (kind == 2) x[k] *= 0x1p-15f;
      x[k] = std::ldexp(x[k], exponent);
    }
    if (kind == 2) x[block + static_cast<size_t>(random->Int(0, 31))] = std::ldexp(3.5f, exponent);
  }
  return Quantised(x, cols, fp8_max);
}

// Sums of products and of their magnitudes, in double: exact but for the last bits.
struct Exact {
  std::vector<double> sum, magnitude;
};

Exact ExactProduct(const WeightView& w, const std::vector<float>& x) {
  Exact e;
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(w.cols)) {
    for (int64_t o = 0; o < w.rows; ++o) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < w.cols; ++k) {
        const uint8_t byte = w.data[o * w.row_stride_bytes + k / 2];
        const double weight = std::ldexp(double{E2m1ToFloat(k % 2 == 0 ? byte & 15 : byte >> 4)},
                                         w.scale[o * w.scale_stride_bytes + k / 32] - 127);
        const double product = weight * double{x[first + static_cast<size_t>(k)]};
        sum += product;
        magnitude += std::fabs(product);
      }
      e.sum.push_back(sum);
      e.magnitude.push_back(magnitude);
    }
  }
  return e;
}

// Roundings: one of a block's sum, one for every group of 512 columns, four over lanes.
TEST(ExactExperts, NearExactSumsAndRowsIndependent) {
  Random random(20260201);
  for (int64_t cols : {32, 64, 96, 480, 512, 544, 800, 1056, 2304}) {
    const int64_t outputs = cols == 2304 ? 9 : random.Int(1, 70);
    const TestWeight w = RandomWeight(DType::kFp4Row32, outputs, cols, Values::kAny, &random);
    const float fp8_max = cols % 64 == 0 ? 448.0f : 224.0f;
    const std::vector<float> x = QuantisedRows(kMaxRows, cols, fp8_max, &random);
    const GuardedFloats guarded(x);
    const Exact exact = ExactProduct(w.view, x);
    const double roundings = static_cast<double>((cols + 511) / 512 + 5);
    std::vector<float> first;
    for (const KernelTable* table : ExactTables()) {
      SCOPED_TRACE(testing::Message() << table->isa << " [" << outputs << ", " << cols << "]");
      const std::vector<float> y = Product(*table, w.view, guarded.data(), kMaxRows, 3);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(y[i], exact.sum[i], roundings * 0x1p-24 * exact.magnitude[i]) << i;
      }
      for (int32_t n : RowCounts()) {
        const int64_t skipped = kMaxRows - n;
        ASSERT_EQ(Product(*table, w.view, guarded.data() + skipped * cols, n, 1 + n % 3),
                  std::vector<float>(y.begin() + skipped * outputs, y.end()))
            << n << " rows";
      }
      if (first.empty()) first = y;
      ExpectSame(first, y, "the bits of the other levels");
    }
  }
}

// Every e4m3 code against every fp4 code, beside a 448 that a zero weight meets: exact.
TEST(ExactExperts, EveryPairOfCodes) {
  std::vector<uint8_t> data(16 * 16, 0);
  for (size_t code = 0; code < 16; ++code) data[code * 16 + 5] = static_cast<uint8_t>(code << 4);
  const TestWeight w = MakeWeight(DType::kFp4Row32, 16, 32, data, std::vector<uint8_t>(16, 120));
  std::vector<float> x;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    std::vector<float> row(32, 0.0f);
    row[11] = E4m3ToFloat(static_cast<uint8_t>(code));
    row[30] = 448.0f;
    x.insert(x.end(), row.begin(), row.end());
  }
  const Exact exact = ExactProduct(w.view, x);
  const auto n_rows = static_cast<int32_t>(x.size() / 32);
  for (const KernelTable* table : ExactTables()) {
    const std::vector<float> y = Product(*table, w.view, x.data(), n_rows);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], exact.sum[i]) << table->isa << " " << i;
  }
}

// One block: its sum is rounded once, results below 2^-126 once more. Scale 255 is NaN.
TEST(ExactExperts, EveryScale) {
  Random random(20260202);
  std::vector<uint8_t> scales(256);
  for (size_t s = 0; s < 256; ++s) scales[s] = static_cast<uint8_t>(s);
  std::vector<uint8_t> data(256 * 16);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random.Int(0, 255));
  const TestWeight w = MakeWeight(DType::kFp4Row32, 256, 32, data, scales);
  const std::vector<float> x = Quantised(random.Normals(20 * 32), 32);
  const Exact exact = ExactProduct(w.view, x);
  for (const KernelTable* table : ExactTables()) {
    const std::vector<float> y = Product(*table, w.view, x.data(), 20);
    for (size_t i = 0; i < y.size(); ++i) {
      SCOPED_TRACE(testing::Message() << table->isa << " scale " << i % 256);
      if (i % 256 == 255) {
        ASSERT_TRUE(std::isnan(y[i]));
      } else if (std::fabs(exact.sum[i]) > 0x1.fp127) {
        ASSERT_EQ(y[i] > 0, exact.sum[i] > 0);  // may be infinite
      } else {
        ASSERT_NEAR(y[i], exact.sum[i], std::fabs(exact.sum[i]) * 0x1p-24 + 0x1p-149);
      }
    }
  }
}

// Blocks scaled by the extremes that the quantiser can give, up to the largest floats.
TEST(ExactExperts, EveryMagnitudeOfABlock) {
  Random random(20260203);
  const TestWeight w = RandomWeight(DType::kFp4Row32, 32, 32, Values::kExact, &random);
  for (int exponent = -149; exponent <= 120; ++exponent) {
    std::vector<float> x = random.Normals(2 * 32);
    for (float& v : x) v = std::ldexp(v, exponent);
    x = Quantised(x, 32);
    const Exact exact = ExactProduct(w.view, x);
    for (const KernelTable* table : ExactTables()) {
      const std::vector<float> y = Product(*table, w.view, x.data(), 2);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(y[i], exact.sum[i], std::fabs(exact.sum[i]) * 0x1p-24)
            << table->isa << " 2^" << exponent;
      }
    }
  }
}

// A last group that is not whole takes neither codes nor scales from the row behind it.
TEST(ExactExperts, NanScalesStayInTheirWeightRow) {
  Random random(20260205);
  constexpr int64_t kOutputs = 17;
  for (int64_t cols : {32, 96, 288, 480, 544, 1248, 2304}) {
    const TestWeight w = RandomWeight(DType::kFp4Row32, kOutputs, cols, Values::kAny, &random);
    const int64_t n_scales = cols / 32;
    std::vector<uint8_t> scales(w.view.scale, w.view.scale + kOutputs * n_scales);
    for (int64_t o = 1; o < kOutputs; o += 2) {
      std::fill_n(scales.begin() + o * n_scales, n_scales, uint8_t{255});
    }
    const GuardedBuffer guarded(scales);
    WeightView spoilt = w.view;
    spoilt.scale = guarded.bytes();
    for (int32_t n : {1, 2, 3, 17}) {
      const std::vector<float> x = QuantisedRows(n, cols, 448, &random);
      for (const KernelTable* table : ExactTables()) {
        const std::vector<float> clean = Product(*table, w.view, x.data(), n);
        const std::vector<float> y = Product(*table, spoilt, x.data(), n);
        for (size_t i = 0; i < y.size(); ++i) {
          if (i % kOutputs % 2 == 1) {
            ASSERT_TRUE(std::isnan(y[i])) << table->isa << " " << cols;
          } else {
            ASSERT_EQ(y[i], clean[i]) << table->isa << " " << cols;
          }
        }
      }
    }
  }
}

// A value that is not finite makes its row NaN and no other.
TEST(ExactExperts, NanStaysInItsRow) {
  Random random(20260204);
  constexpr int64_t kCols = 1056, kRows = 40;
  const TestWeight w = RandomWeight(DType::kFp4Row32, 20, kCols, Values::kAny, &random);
  std::vector<float> x = QuantisedRows(kRows, kCols, 448, &random);
  for (const KernelTable* table : ExactTables()) {
    const std::vector<float> clean = Product(*table, w.view, x.data(), kRows);
    for (int64_t k = 0; k < kCols; k += 53) {
      const int64_t row = k % kRows;
      const auto at = static_cast<size_t>(row * kCols + k);
      const float saved = std::exchange(x[at], k % 2 == 0 ? NAN : -INFINITY);
      const std::vector<float> y = Product(*table, w.view, x.data(), kRows);
      x[at] = saved;
      for (int64_t i = 0; i < kRows * 20; ++i) {
        const float value = y[static_cast<size_t>(i)];
        if (i / 20 == row) {
          ASSERT_TRUE(std::isnan(value)) << table->isa;
        } else {
          ASSERT_EQ(value, clean[static_cast<size_t>(i)]) << table->isa;
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
