// linear of every instruction set against the scalar reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "backend/cpu/matrix_test_util.h"

namespace deepinfer {
namespace {

bool SameValue(float a, float b) { return SameBits(a, b) || (std::isnan(a) && std::isnan(b)); }

constexpr int64_t kMaxRows = 300;

// Runs `threads` parts one after the other on n_rows rows of x; the result is [n_rows, outputs].
struct Product {
  WeightView w;
  int64_t x_stride;
  int32_t group_out = 0;
  WeightDecode decode = WeightDecode::kAsStored;
  bool round = false, bf16_inputs = false;

  std::vector<float> Run(const KernelTable& table, const float* x, int32_t n_rows,
                         int threads = 1) const {
    const int64_t scratch_stride =
        bf16_inputs ? LinearScratchFloats(w.cols) : (w.cols + 15) / 16 * 16;
    const GuardedFloats scratch(std::vector<float>(static_cast<size_t>(threads * scratch_stride)));
    const GuardedBuffer y(std::vector<float>(static_cast<size_t>(n_rows * w.rows), NAN));
    const LinearArgs args = {.n_rows = &n_rows,
                             .x = x,
                             .x_stride = x_stride,
                             .w = w,
                             .y = y.floats(),
                             .y_stride = w.rows,
                             .group_out = group_out,
                             .decode = decode,
                             .round = round,
                             .bf16_inputs = bf16_inputs,
                             .scratch = scratch.data(),
                             .scratch_stride = scratch_stride};
    RunParts(table.linear, args, threads);
    return {y.floats(), y.floats() + n_rows * w.rows};
  }
};

// Tables that multiply bf16 values on tiles are tested with such values: `p` and `x` as they go
// into the table.
bool HasTiles(const KernelTable& table) { return std::string(table.isa) == "amx"; }

Product For(const KernelTable& table, Product p) {
  p.bf16_inputs = HasTiles(table);
  return p;
}

std::vector<float> For(const KernelTable& table, std::vector<float> x) {
  for (float& v : x) v = HasTiles(table) ? RoundBf16(v) : v;
  return x;
}

// Tiles add one column after the other and read subnormal values as zero.
bool OnTiles(const KernelTable& table, DType dtype) {
  return HasTiles(table) && dtype != DType::kF32;
}

// sum_k |x[k] * w[k]|, what the rounding errors of a sum are measured against.
std::vector<float> MagnitudeSums(const Product& p, const std::vector<float>& x) {
  Product decoded = p;
  decoded.round = false;
  std::vector<float> unit(static_cast<size_t>(p.w.cols * p.w.cols),
                          0.0f);  // the weight itself, through the reference
  for (int64_t k = 0; k < p.w.cols; ++k) unit[static_cast<size_t>(k * p.w.cols + k)] = 1.0f;
  decoded.group_out = 0;
  decoded.x_stride = p.w.cols;
  std::vector<float> w =
      decoded.Run(ReferenceKernels(), unit.data(), static_cast<int32_t>(p.w.cols));
  std::vector<float> transposed(w.size());
  for (int64_t k = 0; k < p.w.cols; ++k) {
    for (int64_t o = 0; o < p.w.rows; ++o) {
      transposed[static_cast<size_t>(o * p.w.cols + k)] =
          std::fabs(w[static_cast<size_t>(k * p.w.rows + o)]);
    }
  }
  std::vector<float> magnitudes = x;
  for (float& v : magnitudes) v = std::fabs(v);
  Product sums = p;
  sums.round = false;
  sums.decode = WeightDecode::kAsStored;
  sums.w = {.data = reinterpret_cast<const uint8_t*>(transposed.data()),
            .scale = nullptr,
            .dtype = DType::kF32,
            .rows = p.w.rows,
            .cols = p.w.cols,
            .row_stride_bytes = p.w.cols * 4,
            .scale_stride_bytes = 0,
            .scale_row0 = 0};
  return sums.Run(ReferenceKernels(), magnitudes.data(),
                  static_cast<int32_t>(static_cast<int64_t>(x.size()) / p.x_stride));
}

// Every row count, some thread counts: the same bits as the first rows of the largest run, and as
// single rows.
void ExpectRowsIndependent(const Product& p, const KernelTable& table, const float* x,
                           const std::vector<float>& all) {
  for (int32_t n : RowCounts()) {
    const std::vector<float> y = p.Run(table, x + (kMaxRows - n) * p.x_stride, n, 1 + n % 3);
    const float* expected = all.data() + (kMaxRows - n) * p.w.rows;
    ASSERT_TRUE(std::equal(y.begin(), y.end(), expected, SameValue)) << n << " rows";
  }
  for (int64_t r : {0, 1, 5, 63, 64, 127, 299}) {
    const std::vector<float> y = p.Run(table, x + r * p.x_stride, 1);
    ASSERT_TRUE(std::equal(y.begin(), y.end(), all.data() + r * p.w.rows, SameValue))
        << "row " << r;
  }
}

// Against the reference, which adds in double: |error| <= (terms of a lane + steps over lanes) *
// 2^-24 * sum |x w|, the textbook bound of such a sum, one ulp more for the reference's own
// rounding.
void ExpectNearReference(const Product& p, const KernelTable& table, const std::vector<float>& x,
                         const std::vector<float>& all) {
  const std::vector<float> expected = p.Run(ReferenceKernels(), x.data(), kMaxRows);
  const std::vector<float> sums = MagnitudeSums(p, x);
  const float terms = static_cast<float>(p.w.cols) / (OnTiles(table, p.w.dtype) ? 1 : 8);
  const float limit = (terms + 7) * 0x1p-24f;
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_NEAR(all[i], expected[i], limit * sums[i]) << table.isa << " output " << i;
  }
}

struct Case {
  DType dtype;
  int64_t rows, cols;
  WeightDecode decode;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto stored = WeightDecode::kAsStored;
  int64_t outputs = 1;
  for (int64_t cols : {32, 64, 96, 160, 192, 544, 1056}) {
    for (DType dtype : {DType::kFp4Row32, DType::kFp8Tile32, DType::kFp8Row32}) {
      cases.push_back({dtype, outputs, cols, stored});
      outputs = outputs % 37 + 5;  // 1, 6, 11, ...: with and without an odd tail of the panel
    }
    cases.push_back({DType::kFp8Tile32, outputs, cols, WeightDecode::kHalvedFp8});
  }
  for (int64_t cols : {128, 384, 512}) {  // whole groups of 128 columns
    for (DType dtype : {DType::kFp4Row32, DType::kFp8Tile32, DType::kFp8Row32}) {
      cases.push_back({dtype, 40, cols, stored});
    }
    cases.push_back({DType::kFp8Tile32, 64, cols, WeightDecode::kHalvedFp8});
    cases.push_back({DType::kBf16, 40, cols, stored});
  }
  for (int64_t cols : {1, 7, 8, 33, 100, 515, 1030}) {
    cases.push_back({DType::kBf16, outputs, cols, stored});
    outputs = outputs % 37 + 5;
    cases.push_back({DType::kF32, outputs, cols, stored});
    cases.push_back({DType::kF32, outputs, cols, WeightDecode::kNarrowedF32});
  }
  return cases;
}

TEST(Linear, NearTheReferenceAndRowsIndependent) {
  Random random(20260101);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(testing::Message()
                 << "dtype " << int{static_cast<uint8_t>(c.dtype)} << " [" << c.rows << ", "
                 << c.cols << "] decode " << int{static_cast<uint8_t>(c.decode)});
    TestWeight w = RandomWeight(c.dtype, c.rows, c.cols, Values::kAny, &random);
    if (c.dtype == DType::kFp8Tile32) w.view.scale_row0 = c.cols % 256 == 0 ? 0 : random.Int(0, 31);
    const std::vector<float> values = RandomActivations(kMaxRows * c.cols, Values::kAny, &random);
    for (const KernelTable* table : VectorTables()) {
      const std::vector<float> x = For(*table, values);
      const GuardedBuffer guarded(x);
      const Product p = For(*table, Product{.w = w.view, .x_stride = c.cols, .decode = c.decode});
      const std::vector<float> all = p.Run(*table, guarded.floats(), kMaxRows);
      ExpectNearReference(p, *table, x, all);
      ExpectRowsIndependent(p, *table, guarded.floats(), all);
    }
  }
}

// Fewer rows share weights that are wide.
TEST(Linear, RowsOfWideWeightsAreIndependent) {
  Random random(20260102);
  for (DType dtype : {DType::kFp8Tile32, DType::kFp4Row32, DType::kBf16}) {
    SCOPED_TRACE(testing::Message() << "dtype " << int{static_cast<uint8_t>(dtype)});
    const TestWeight w = RandomWeight(dtype, 36, 6272, Values::kAny, &random);
    const std::vector<float> values =
        RandomActivations(kMaxRows * w.view.cols, Values::kAny, &random);
    for (const KernelTable* table : VectorTables()) {
      const std::vector<float> x = For(*table, values);
      const Product p = For(*table, Product{.w = w.view, .x_stride = w.view.cols});
      ExpectRowsIndependent(p, *table, x.data(), p.Run(*table, x.data(), kMaxRows));
    }
  }
}

// Many rows of many outputs take another way to memory, where their cache lines are whole.
TEST(Linear, WideResultsAreThoseOfSingleRows) {
  Random random(20261130);
  constexpr int32_t kRows = 130;
  for (int64_t outputs : {8240, 8216, 8203}) {  // whole lines and half a panel; half lines; neither
    const TestWeight w = RandomWeight(DType::kFp8Tile32, outputs, 128, Values::kAny, &random);
    const std::vector<float> values = RandomActivations(kRows * 128, Values::kAny, &random);
    for (const KernelTable* table : VectorTables()) {
      SCOPED_TRACE(testing::Message() << table->isa << ", " << outputs << " outputs");
      const std::vector<float> x = For(*table, values);
      const Product p = For(*table, Product{.w = w.view, .x_stride = 128, .round = true});
      const std::vector<float> all = p.Run(*table, x.data(), kRows);
      for (int32_t n : {32, 33, 65}) {
        const std::vector<float> y = p.Run(*table, x.data(), n, 1 + n % 3);
        ASSERT_TRUE(std::equal(y.begin(), y.end(), all.begin())) << n << " rows";
      }
      for (int64_t r : {0, 31, 64, 129}) {
        const std::vector<float> y = p.Run(*table, x.data() + r * 128, 1);
        ASSERT_TRUE(std::equal(y.begin(), y.end(), all.begin() + r * outputs)) << "row " << r;
      }
    }
  }
}

// Sums of small whole numbers are exact in any order, so rounding and groups must agree bit for
// bit.
TEST(Linear, BitEqualWhereSumsAreExact) {
  Random random(20260102);
  for (DType dtype :
       {DType::kBf16, DType::kF32, DType::kFp8Tile32, DType::kFp8Row32, DType::kFp4Row32}) {
    for (const auto& [outputs, cols] : {std::pair<int32_t, int64_t>{30, 704}, {96, 768}}) {
      const TestWeight w = RandomWeight(dtype, outputs, cols, Values::kExact, &random);
      const std::vector<float> x = RandomActivations(65 * 3 * cols, Values::kExact, &random);
      for (bool round : {false, true}) {
        for (int32_t group_out : {0, outputs / 3}) {
          const Product p = {
              .w = w.view, .x_stride = 3 * cols, .group_out = group_out, .round = round};
          const std::vector<float> expected = p.Run(ReferenceKernels(), x.data(), 65);
          for (const KernelTable* table : VectorTables()) {
            for (int threads : {1, 2, 3}) {
              ASSERT_EQ(For(*table, p).Run(*table, x.data(), 65, threads), expected)
                  << table->isa << " dtype " << int{static_cast<uint8_t>(dtype)} << " round "
                  << round << " groups of " << group_out << " threads " << threads;
            }
          }
        }
      }
    }
  }
}

// Rows [begin, end) of a weight, multiples of 32 but for the last.
WeightView RowsOf(WeightView w, int64_t begin, int64_t end) {
  w.data += begin * w.row_stride_bytes;
  if (w.scale != nullptr)
    w.scale += begin / (w.dtype == DType::kFp8Tile32 ? 32 : 1) * w.scale_stride_bytes;
  w.rows = end - begin;
  return w;
}

// Some rows of a weight, alone, give what they give in the whole: the promise that lets ranks share
// a matrix.
TEST(Linear, RowsOfAWeightAreThoseOfTheWhole) {
  Random random(20260103);
  constexpr int64_t kCols = 1280, kOutputs = 96, kRows = 70;
  for (DType dtype : {DType::kFp8Tile32, DType::kFp4Row32, DType::kBf16, DType::kF32}) {
    const TestWeight w = RandomWeight(dtype, kOutputs, kCols, Values::kAny, &random);
    const std::vector<float> values = RandomActivations(kRows * kCols, Values::kAny, &random);
    for (const KernelTable* table : VectorTables()) {
      const std::vector<float> x = For(*table, values);
      const Product whole = For(*table, Product{.w = w.view, .x_stride = kCols});
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 32}, {32, 96}, {64, 96}}) {
        Product part = whole;
        part.w = RowsOf(w.view, begin, end);
        for (int32_t n : {1, 2, 6, 16, 70}) {
          const std::vector<float> all = whole.Run(*table, x.data(), n);
          const std::vector<float> y = part.Run(*table, x.data(), n);
          for (int32_t r = 0; r < n; ++r) {
            ASSERT_TRUE(std::equal(y.begin() + r * (end - begin),
                                   y.begin() + (r + 1) * (end - begin),
                                   all.begin() + r * kOutputs + begin, SameValue))
                << table->isa << " dtype " << int{static_cast<uint8_t>(dtype)} << " rows " << begin
                << " of " << n;
          }
        }
      }
    }
  }
}

// One row of x with a single 1 reads a weight back.
TEST(Linear, EveryColumnMeetsItsOwnActivation) {
  Random random(20260104);
  for (DType dtype :
       {DType::kBf16, DType::kF32, DType::kFp8Tile32, DType::kFp8Row32, DType::kFp4Row32}) {
    for (const auto& [outputs, cols] : {std::pair<int64_t, int32_t>{7, 224}, {40, 256}}) {
      // Whole groups of columns: one scale, under which a zero is read back as zero (numerics.md).
      const Values values = cols == 224 ? Values::kAny : Values::kExact;
      const TestWeight w = RandomWeight(dtype, outputs, cols, values, &random);
      std::vector<float> unit(static_cast<size_t>(cols * cols), 0.0f);
      for (int32_t k = 0; k < cols; ++k) unit[static_cast<size_t>(k * cols + k)] = 1.0f;
      const Product p = {.w = w.view, .x_stride = cols};
      const std::vector<float> expected = p.Run(ReferenceKernels(), unit.data(), cols);
      for (const KernelTable* table : VectorTables()) {
        EXPECT_EQ(For(*table, p).Run(*table, unit.data(), cols), expected)
            << table->isa << " dtype " << int{static_cast<uint8_t>(dtype)};
      }
    }
  }
}

// Every code with every scale, against base/formats.h. All columns of a row hold the same code; x
// is 1, 0, 0, ...
void ExpectEveryCode(DType dtype, int64_t cols, int n_codes, WeightDecode decode,
                     float (*value)(uint8_t)) {
  std::vector<uint8_t> data, scale;
  const size_t row_bytes = static_cast<size_t>(BytesOfColumns(dtype, cols));
  const size_t row_scales = static_cast<size_t>(cols / 32);
  for (int s = 0; s < 256; ++s) {
    for (int code = 0; code < n_codes; ++code) {
      data.insert(data.end(), row_bytes,
                  static_cast<uint8_t>(dtype == DType::kFp4Row32 ? code | code << 4 : code));
      scale.insert(scale.end(), row_scales, static_cast<uint8_t>(s));
    }
  }
  const TestWeight w = MakeWeight(dtype, 256 * n_codes, cols, data, scale);
  std::vector<float> x(static_cast<size_t>(cols), 0.0f);
  x[0] = 1.0f;
  for (const KernelTable* table : VectorTables()) {
    const Product p = {.w = w.view, .x_stride = cols, .decode = decode};
    const std::vector<float> y = For(*table, p).Run(*table, x.data(), 1);
    for (size_t i = 0; i < y.size(); ++i) {
      float decoded = value(data[i * row_bytes]) * Ue8m0ToFloat(scale[i * row_scales]);
      if (OnTiles(*table, dtype) && std::fabs(decoded) < 0x1p-126f) decoded = 0;
      const float expected =
          std::isinf(decoded) ? NAN : decoded + 0.0f;  // infinity * 0 in the other columns
      ASSERT_TRUE(SameValue(y[i], expected))
          << table->isa << " code " << int{data[i * row_bytes]} << " scale "
          << int{scale[i * row_scales]} << ": " << y[i] << ", expected " << expected;
    }
  }
}

TEST(Linear, EveryFp8CodeAndScale) {
  for (int64_t cols : {32, 64}) {
    ExpectEveryCode(DType::kFp8Row32, cols, 256, WeightDecode::kAsStored, E4m3ToFloat);
  }
}

TEST(Linear, EveryFp4CodeAndScale) {
  ExpectEveryCode(DType::kFp4Row32, 32, 16, WeightDecode::kAsStored, E2m1ToFloat);
}

TEST(Linear, EveryHalvedFp8CodeAndScale) {
  ExpectEveryCode(DType::kFp8Row32, 32, 256, WeightDecode::kHalvedFp8,
                  [](uint8_t code) { return E4m3ToFloat(FloatToE4m3(E4m3ToFloat(code) / 2)) * 2; });
}

// A panel of random codes for every scale byte, whole groups of columns; some columns are read
// back.
void ExpectEveryScaleOfAPanel(DType dtype, const float* values, WeightDecode decode) {
  Random random(20260108);
  constexpr int64_t kCols = 256, kPanelRows = 32, kRows = 256 * kPanelRows, kRead = 16;
  TestWeight w = RandomWeight(dtype, kRows, kCols, Values::kAny, &random);
  for (int64_t r = 0; r < w.scale->size_bytes() / (kCols / 32); ++r) {
    const int64_t scale = dtype == DType::kFp8Tile32 ? r : r / kPanelRows;
    std::memset(w.scale->bytes() + r * (kCols / 32), static_cast<int>(scale & 255), kCols / 32);
  }
  std::vector<float> x(kRead * kCols, 0.0f);
  for (int64_t i = 0; i < kRead; ++i) x[static_cast<size_t>(i * kCols + 17 * i)] = 1.0f;
  for (const KernelTable* table : VectorTables()) {
    const Product p = {.w = w.view, .x_stride = kCols, .decode = decode};
    const std::vector<float> y = For(*table, p).Run(*table, x.data(), kRead);
    for (int64_t o = 0; o < kRows; ++o) {
      const float scale = Ue8m0ToFloat(static_cast<uint8_t>(o / kPanelRows));
      const uint8_t* row = w.data->bytes() + o * w.view.row_stride_bytes;
      bool spoiled = false;  // infinity * 0 somewhere in the row
      const auto value = [&](int64_t k) {
        return dtype == DType::kFp4Row32 ? values[row[k / 2] >> (k % 2 * 4) & 15] * scale
                                         : values[row[k]] * scale;
      };
      for (int64_t k = 0; k < kCols; ++k) spoiled |= !std::isfinite(value(k));
      for (int64_t i = 0; i < kRead; ++i) {
        float expected = spoiled ? NAN : value(17 * i) + 0.0f;
        if (OnTiles(*table, dtype) && std::fabs(expected) < 0x1p-126f) expected = 0;
        ASSERT_TRUE(SameValue(y[static_cast<size_t>(i * kRows + o)], expected))
            << table->isa << " scale " << o / kPanelRows << " output " << o << ": "
            << y[static_cast<size_t>(i * kRows + o)] << ", expected " << expected;
      }
    }
  }
}

TEST(Linear, EveryScaleOfAPanel) {
  float fp4[16], fp8[256], halved[256];
  for (int c = 0; c < 16; ++c) fp4[c] = E2m1ToFloat(static_cast<uint8_t>(c));
  for (int c = 0; c < 256; ++c) {
    fp8[c] = E4m3ToFloat(static_cast<uint8_t>(c));
    halved[c] = E4m3ToFloat(FloatToE4m3(fp8[c] / 2)) * 2;
  }
  ExpectEveryScaleOfAPanel(DType::kFp4Row32, fp4, WeightDecode::kAsStored);
  ExpectEveryScaleOfAPanel(DType::kFp8Tile32, fp8, WeightDecode::kAsStored);
  ExpectEveryScaleOfAPanel(DType::kFp8Tile32, halved, WeightDecode::kHalvedFp8);
}

// Scales at both ends of what the fast decoders take, and one beyond the lower, among others.
TEST(Linear, ScalesOfAPanelMayDiffer) {
  Random random(20260109);
  for (DType dtype : {DType::kFp4Row32, DType::kFp8Tile32}) {
    const int highest = dtype == DType::kFp4Row32 ? 252 : 246;
    for (int low : {0, 1, 2, 63, 64, 65}) {
      for (int high : {highest - 1, highest}) {
        const TestWeight w = RandomWeight(dtype, 32, 256, Values::kAny, &random);
        for (int64_t i = 0; i < w.scale->size_bytes(); i += 3) {
          w.scale->bytes()[i] = static_cast<uint8_t>(i % 2 == 0 ? low : high);
        }
        std::vector<float> x = random.Bf16s(kMaxRows * 256);
        for (float& v : x) v *= 0x1p-10f;  // sums stay finite
        for (const KernelTable* table : VectorTables()) {
          const Product p = For(*table, Product{.w = w.view, .x_stride = 256});
          const std::vector<float> all = p.Run(*table, x.data(), kMaxRows);
          ExpectNearReference(p, *table, x, all);
          ExpectRowsIndependent(p, *table, x.data(), all);
        }
      }
    }
  }
}

TEST(Linear, EveryBf16Weight) {
  std::vector<uint8_t> data(65536 * 2);
  for (size_t i = 0; i < 65536; ++i)
    data[2 * i] = static_cast<uint8_t>(i & 255), data[2 * i + 1] = static_cast<uint8_t>(i >> 8);
  const TestWeight w = MakeWeight(DType::kBf16, 65536, 1, data, {});
  const float one = 1.0f;
  for (const KernelTable* table : VectorTables()) {
    const std::vector<float> y =
        For(*table, Product{.w = w.view, .x_stride = 1}).Run(*table, &one, 1);
    for (size_t i = 0; i < y.size(); ++i) {
      float expected = Bf16ToFloat(static_cast<uint16_t>(i)) + 0.0f;
      if (HasTiles(*table) && std::fabs(expected) < 0x1p-126f) expected = 0;
      ASSERT_TRUE(SameValue(y[i], expected)) << table->isa << " bits " << i;
    }
  }
}

// The worked fp8 example of spec 03 section 6.4: quantised x, weight codes with scale 2^-4.
TEST(Linear, WorkedExample) {
  std::vector<float> x = {1, -0.3125f, 0.75f, 3.25f, -2.5f, 0.0009765625f, 96, -7};
  x.resize(32, 0.0f);
  std::vector<uint8_t> codes = {0x38, 0xb0, 0x42, 0x2f, 0x3c, 0x7e, 0x11, 0x81};
  codes.resize(32, 0);
  const TestWeight w = MakeWeight(DType::kFp8Tile32, 1, 32, codes, {0x7b});
  for (const KernelTable* table : VectorTables()) {
    const Product p = For(*table, Product{.w = w.view, .x_stride = 32, .round = true});
    EXPECT_EQ(p.Run(*table, x.data(), 1)[0], 0.2890625f) << table->isa;
  }
}

// Rows of the weight, of x and of y that lie more than 4 GiB apart.
TEST(Linear, OffsetsBeyond32Bits) {
  constexpr int64_t kStride =
      (int64_t{3} << 30) + 5;  // bytes between weight rows; floats between rows of x and y
  const int64_t bytes = 4 * kStride * 4;
  void* mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  uint8_t* data = static_cast<uint8_t*>(mapped);
  const uint8_t scales[4] = {127, 127, 127, 127};
  for (int64_t r = 0; r < 4; ++r)
    std::memset(data + r * kStride, FloatToE4m3(static_cast<float>(r + 1)), 32);
  const WeightView w = {.data = data,
                        .scale = scales,
                        .dtype = DType::kFp8Row32,
                        .rows = 4,
                        .cols = 32,
                        .row_stride_bytes = kStride,
                        .scale_stride_bytes = 1,
                        .scale_row0 = 0};
  float* rows = static_cast<float*>(mapped) + 1024;  // x at columns 0 ... 31, y behind it
  for (int64_t r = 0; r < 3; ++r) rows[r * kStride] = static_cast<float>(r + 1);
  const int32_t n_rows = 3;
  alignas(64) float scratch[1024];  // LinearScratchFloats(32)
  for (const KernelTable* table : VectorTables()) {
    const LinearArgs args = {.n_rows = &n_rows,
                             .x = rows,
                             .x_stride = kStride,
                             .w = w,
                             .y = rows + 32,
                             .y_stride = kStride,
                             .group_out = 0,
                             .decode = WeightDecode::kAsStored,
                             .round = false,
                             .bf16_inputs = HasTiles(*table),
                             .scratch = scratch,
                             .scratch_stride = 0};
    table->linear(args, {0, 1});
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t o = 0; o < 4; ++o)
        EXPECT_EQ(rows[r * kStride + 32 + o], static_cast<float>((r + 1) * (o + 1)));
    }
  }
  munmap(mapped, static_cast<size_t>(bytes));
}

// Two threads at once, many times: the same bits every time.
TEST(Linear, SameBitsBesideABusyThread) {
  Random random(20260105);
  const TestWeight w = RandomWeight(DType::kFp4Row32, 32, 256, Values::kAny, &random);
  const std::vector<float> values = RandomActivations(5 * 256, Values::kAny, &random);
  for (const KernelTable* table : VectorTables()) {
    const std::vector<float> x = For(*table, values);
    const Product p = For(*table, Product{.w = w.view, .x_stride = 256});
    const std::vector<float> expected = p.Run(*table, x.data(), 5);
    int wrong[2] = {0, 0};
    const auto repeat = [&](int t) {
      for (int i = 0; i < 6000; ++i) wrong[t] += p.Run(*table, x.data(), 5) != expected ? 1 : 0;
    };
    std::thread other(repeat, 1);
    repeat(0);
    other.join();
    EXPECT_EQ(wrong[0] + wrong[1], 0) << table->isa;
  }
}

// A NaN code spoils its output, a NaN activation its row, and nothing else.
TEST(Linear, NanStaysWhereItIs) {
  Random random(20260107);
  constexpr int64_t kCols = 384, kOutputs = 40, kRows = 20;
  const TestWeight w = RandomWeight(DType::kFp8Tile32, kOutputs, kCols, Values::kAny, &random);
  std::vector<float> x = random.Bf16s(kRows * kCols);
  for (const KernelTable* table : VectorTables()) {
    const Product p = For(*table, Product{.w = w.view, .x_stride = kCols});
    const std::vector<float> clean = p.Run(*table, x.data(), kRows);
    for (int64_t k = 0; k < kCols; k += 7) {
      const int64_t output = k % kOutputs, row = k % kRows;
      uint8_t* code = w.data->bytes() + output * w.view.row_stride_bytes + k;
      const uint8_t saved_code = std::exchange(*code, k % 2 == 0 ? 0x7f : 0xff);
      const float saved = std::exchange(x[static_cast<size_t>(row * kCols + k)], NAN);
      const std::vector<float> y = p.Run(*table, x.data(), kRows);
      *code = saved_code;
      x[static_cast<size_t>(row * kCols + k)] = saved;
      for (int64_t i = 0; i < kRows * kOutputs; ++i) {
        const bool nan = i / kOutputs == row || i % kOutputs == output;
        const float expected = nan ? NAN : clean[static_cast<size_t>(i)];
        ASSERT_TRUE(SameValue(y[static_cast<size_t>(i)], expected))
            << table->isa << " column " << k;
      }
    }
  }
}

// Activations that are no bf16 values must not be narrowed: then tiles are not used.
TEST(Linear, TilesServeBf16InputsOnly) {
  Random random(20260106);
  const TestWeight w = RandomWeight(DType::kFp8Tile32, 40, 320, Values::kAny, &random);
  const std::vector<float> x = RandomActivations(5 * 320, Values::kAny, &random);
  for (const KernelTable* table : VectorTables()) {
    if (!HasTiles(*table)) continue;
    const Product p = {.w = w.view, .x_stride = 320};
    const KernelTable& lower = SelectKernels(DetectCpuFeatures(), "avx512");
    EXPECT_EQ(p.Run(*table, x.data(), 5), p.Run(lower, x.data(), 5));
  }
}

}  // namespace
}  // namespace deepinfer
