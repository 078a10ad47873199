// Quantisers and cache rows: every table against the published examples of the number formats,
// against rounding done by search, and bit for bit against the scalar reference.
#include "ops/rows.h"

#include "backend/cpu/kernel_test.h"

namespace deepinfer {
namespace {

constexpr RowFormat kPacked[] = {RowFormat::kFp8Block32, RowFormat::kFp4Block32,
                                 RowFormat::kFp4Block16};

std::string Name(RowFormat format) { return "format " + std::to_string(static_cast<int>(format)); }

// The bytes that one row becomes.
std::vector<uint8_t> Store(const KernelTable& table, RowFormat format, std::vector<float> x) {
  const int32_t n_rows = 1;
  const int64_t slot = 0;
  const int64_t cols = static_cast<int64_t>(x.size());
  std::vector<uint8_t> row(static_cast<size_t>(RowBytes(format, cols)), 0xa5);
  table.store_rows({.n_rows = &n_rows,
                    .x = x.data(),
                    .slots = &slot,
                    .cache = row.data(),
                    .cols = static_cast<int32_t>(cols),
                    .format = format,
                    .fp8_max = 448},
                   Work{0, 1});
  return row;
}

struct Example {
  std::vector<float> x;  // the start of a block of 32, the rest is 0
  int scale;
  std::vector<uint8_t> codes;  // bytes
};

void ExpectExamples(RowFormat format, const std::vector<Example>& examples) {
  for (const KernelTable* table : VectorTables()) {
    for (size_t i = 0; i < examples.size(); ++i) {
      std::vector<float> x = examples[i].x;
      x.resize(32);
      const std::vector<uint8_t> row = Store(*table, format, x);
      const size_t n_codes = format == RowFormat::kFp8Block32 ? 32 : 16;
      EXPECT_EQ(row[n_codes], examples[i].scale) << table->isa << " example " << i + 1;
      for (size_t k = 0; k < examples[i].codes.size(); ++k) {
        EXPECT_EQ(row[k], examples[i].codes[k])
            << table->isa << " example " << i + 1 << " byte " << k;
      }
    }
  }
}

// The worked examples of spec 03 section 6.1 to 6.3.
TEST(StoreRows, PublishedFp8Examples) {
  const std::vector<float> a1 = {1, -0.30078125f, 0.75f, 3.140625f, -2.5f, 0.00099945068f, 100, -7};
  ExpectExamples(RowFormat::kFp8Block32,
                 {{a1, 125, {0x48, 0xba, 0x44, 0x55, 0xd2, 0x02, 0x7c, 0xde, 0, 0}},
                  {{}, 105, {0, 0, 0, 0}},
                  {{448, 1, -448, 0.5f, 17, -18, 19, 3.5f},
                   127,
                   {0x7e, 0x38, 0xfe, 0x30, 0x58, 0xd9, 0x5a, 0x46}},
                  {{450, 1, -3, 0.5f, 17, -18, 19, 3.5f},
                   128,
                   {0x76, 0x30, 0xbc, 0x28, 0x50, 0xd1, 0x52, 0x3e}},
                  {{1.00135803e-5f, -2.00271606e-5f, 2.9951334e-6f}, 105, {0x62, 0xea, 0x55}}});
}

TEST(StoreRows, PublishedIndexFp4Examples) {
  const std::vector<float> b1 = {1, -0.30078125f, 0.75f, 3.140625f, -2.5f, 0.10009766f, 5, -7};
  ExpectExamples(
      RowFormat::kFp4Block32,
      {{b1, 128, {0x81, 0x31, 0x0a, 0xe4}},
       {{6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5}, 127, {0x07, 0x22, 0x44, 0x66}},
       {{6.03125f, 0.5f, 1.5f, 2.5f, 3.5f, 5, -0.25f, -1}, 128, {0x05, 0x22, 0x44, 0x98}},
       {{}, 1, {0, 0, 0, 0}}});
}

TEST(StoreRows, PublishedKvFp4Examples) {
  const std::vector<float> b1 = {1, -0.30078125f, 0.75f, 3.140625f, -2.5f, 0.10009766f, 5, -7};
  ExpectExamples(RowFormat::kFp4Block16,
                 {{b1, 0x39, {0x92, 0x51, 0x0c, 0xf6}},
                  {{6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5}, 0x38, {0x07, 0x22, 0x44, 0x66}},
                  {{}, 1, {0, 0, 0, 0}},
                  {{1e-4f, 1e-4f, -1e-4f}, 1, {0x00, 0x08}},
                  {{3008, -1504, 700, 100}, 0x7e, {0xd7, 0x03}}});
}

// The code whose value is nearest, the even one on ties, by looking at all of them.
template <class ToFloat>
int NearestCode(double x, int n_positive, ToFloat to_float) {
  int best = 0;
  for (int code = 1; code < n_positive; ++code) {
    const double now = std::fabs(double{to_float(code)} - std::fabs(x));
    const double before = std::fabs(double{to_float(best)} - std::fabs(x));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

// An anchor in every block fixes the scale to 1, so the codes are those of the values themselves.
TEST(StoreRows, AllBf16ValuesRoundToNearestEven) {
  for (const KernelTable* table : VectorTables()) {
    for (RowFormat format : kPacked) {
      const bool fp8 = format == RowFormat::kFp8Block32;
      const float anchor = fp8 ? 448.0f : 6.0f;
      for (int bits = 0; bits < 65536; ++bits) {
        const float x = Bf16ToFloat(static_cast<uint16_t>(bits));
        if (!(std::fabs(x) <= anchor)) continue;
        std::vector<float> block(32);
        block[0] = block[16] = anchor;
        block[1] = x;
        const std::vector<uint8_t> row = Store(*table, format, block);
        const int code = fp8 ? row[1] : row[0] >> 4;
        const int expected =
            fp8 ? NearestCode(x, 127, [](int c) { return E4m3ToFloat(static_cast<uint8_t>(c)); })
                : NearestCode(x, 8, [](int c) { return E2m1ToFloat(static_cast<uint8_t>(c)); });
        ASSERT_EQ(code, expected | (std::signbit(x) ? (fp8 ? 0x80 : 8) : 0))
            << table->isa << " " << Name(format) << " " << x;
      }
    }
  }
}

// Every bf16 value but NaN as the largest of its block: scale, codes and saturation at both ends.
TEST(StoreRows, AllBf16MaximaEqualTheReference) {
  for (const KernelTable* table : VectorTables()) {
    for (RowFormat format : kPacked) {
      for (int bits = 0; bits < 65536; ++bits) {
        const float x = Bf16ToFloat(static_cast<uint16_t>(bits));
        if (std::isnan(x)) continue;
        std::vector<float> block(32);
        block[0] = block[20] = x;
        block[3] = block[17] = -x / 3;
        ASSERT_EQ(Store(*table, format, block), Store(ReferenceKernels(), format, block))
            << table->isa << " " << Name(format) << " " << x;
      }
    }
  }
}

// Values of very different size, zeros of both signs, an infinity and blocks of zeros.
std::vector<float> MixedValues(Random* random, int64_t n) {
  std::vector<float> x = random->Normals(n);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::ldexp(x[i], random->Int(-3, 3) + (i / 32 % 5 == 4 ? random->Int(-120, 110) : 0));
    if (i / 32 % 7 == 3 || random->Int(0, 20) == 0) x[i] = random->Int(0, 1) ? 0.0f : -0.0f;
    if (random->Int(0, 3000) == 0) x[i] = INFINITY;
  }
  return x;
}

TEST(QuantRows, EqualTheReferenceForAllShapes) {
  std::printf("seed %u\n", kSeed);
  Random random;
  std::vector<int32_t> counts = RowCounts();
  counts.push_back(1024);
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : counts) {
      for (int32_t cols : {32, 96, 160, 192}) {
        const std::vector<float> x = MixedValues(&random, int64_t{rows} * cols);
        for (RowFormat format : kPacked) {
          const GuardedFloats from(x), expected(x), found(x);
          for (float fp8_max : {448.0f, 224.0f}) {
            QuantRowsArgs args = {&rows, from.data(), expected.data(), cols, format, fp8_max};
            RunParts(ReferenceKernels().quant_rows, args, 1);
            args.y = found.data();
            RunParts(table->quant_rows, args, rows % 3 + 1);
            ExpectSame(expected.values(), found.values(),
                       std::string(table->isa) + " " + Name(format) + " rows " +
                           std::to_string(rows) + " cols " + std::to_string(cols));
          }
        }
      }
    }
  }
}

TEST(QuantRows, InPlaceGivesTheSame) {
  Random random;
  const int32_t rows = 5, cols = 160;
  for (const KernelTable* table : VectorTables()) {
    for (RowFormat format : kPacked) {
      std::vector<float> x = random.Normals(int64_t{rows} * cols), y(x.size());
      RunParts(table->quant_rows, QuantRowsArgs{&rows, x.data(), y.data(), cols, format, 448}, 2);
      RunParts(table->quant_rows, QuantRowsArgs{&rows, x.data(), x.data(), cols, format, 448}, 3);
      ExpectSame(y, x, table->isa);
    }
  }
}

// A NaN must not come out as an ordinary number, nor reach other blocks.
TEST(QuantRows, NanFillsItsBlock) {
  const int32_t rows = 1, cols = 96;
  std::vector<const KernelTable*> tables = VectorTables();
  tables.push_back(&ReferenceKernels());
  for (const KernelTable* table : tables) {
    for (RowFormat format : kPacked) {
      const size_t block = format == RowFormat::kFp4Block16 ? 16 : 32;
      std::vector<float> x(96, 6.0f), y(96);  // 6 is exact in every format
      x[40] = NAN;
      RunParts(table->quant_rows, QuantRowsArgs{&rows, x.data(), y.data(), cols, format, 448}, 1);
      for (size_t i = 0; i < 96; ++i) {
        if (i / block == 40 / block) {
          EXPECT_TRUE(std::isnan(y[i])) << table->isa << " " << Name(format) << " " << i;
        } else {
          EXPECT_EQ(y[i], 6.0f) << table->isa << " " << Name(format) << " " << i;
        }
      }
    }
  }
}

// A cache that starts at an odd address and ends at a guard page; rows go to scattered slots and
// no other byte changes.
TEST(StoreRows, CacheBytesEqualTheReference) {
  Random random;
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : RowCounts()) {
      for (int32_t cols : {32, 96, 512}) {
        const std::vector<float> x = MixedValues(&random, int64_t{rows} * cols);
        std::vector<int64_t> slots;
        for (int64_t r = 0; r < rows; ++r) slots.push_back(2 * (rows - 1 - r) + 1);
        for (RowFormat format : {RowFormat::kF32, RowFormat::kFp8Block32, RowFormat::kFp4Block32,
                                 RowFormat::kFp4Block16}) {
          const int64_t bytes = RowBytes(format, cols) * 2 * rows;
          const GuardedBuffer expected(bytes), found(bytes);
          std::memset(expected.bytes(), 0x5a, static_cast<size_t>(bytes));
          std::memset(found.bytes(), 0x5a, static_cast<size_t>(bytes));
          StoreRowsArgs args = {&rows, x.data(), slots.data(), expected.bytes(), cols, format, 448};
          RunParts(ReferenceKernels().store_rows, args, 1);
          args.cache = found.bytes();
          RunParts(table->store_rows, args, rows % 3 + 1);
          ASSERT_EQ(std::memcmp(expected.bytes(), found.bytes(), static_cast<size_t>(bytes)), 0)
              << table->isa << " " << Name(format) << " rows " << rows << " cols " << cols;
        }
      }
    }
  }
}

// Norm and rotation on the way into the cache give the bytes of the single ops.
TEST(StoreRows, NormsAndRotatesLikeTheOpsOfTheirOwn) {
  Random random;
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : RowCounts()) {
      for (int32_t cols : {32, 96, 512}) {
        const int32_t dim = cols == 96 ? 20 : 16, half = dim / 2;
        const GuardedFloats x(random.Normals(int64_t{rows} * cols));
        const GuardedBuffer weight(ToBf16(random.Normals(cols)));
        const GuardedFloats cosines(random.Normals(rows * half)),
            sines(random.Normals(rows * half));
        std::vector<int64_t> slots;
        std::vector<int32_t> table_rows;
        for (int32_t r = 0; r < rows; ++r) slots.push_back(r), table_rows.push_back(rows - 1 - r);
        for (int variant = 0; variant < 8; ++variant) {
          const bool norm = (variant & 1) != 0, rotate = (variant & 2) != 0,
                     round = (variant & 4) != 0;
          const RowRotation rope = {cosines.data(), sines.data(), table_rows.data(), dim};
          std::vector<float> y = x.values();
          if (norm) {
            RunParts(table->rms_norm,
                     RmsNormArgs{&rows, x.data(), weight.bytes(), y.data(), cols, 1e-20f, round},
                     1);
          }
          if (rotate)
            RunParts(table->rope, RopeArgs{&rows, y.data(), 1, cols, rope, false, round}, 1);
          const RowFormat format =
              variant % 3 == 0 ? RowFormat::kFp8Block32 : RowFormat::kFp4Block16;
          const int64_t bytes = RowBytes(format, cols) * rows;
          const GuardedBuffer expected(bytes), found(bytes);
          RunParts(
              table->store_rows,
              StoreRowsArgs{&rows, y.data(), slots.data(), expected.bytes(), cols, format, 448}, 1);
          RunParts(table->store_rows,
                   StoreRowsArgs{&rows, x.data(), slots.data(), found.bytes(), cols, format, 448,
                                 norm ? weight.bytes() : nullptr, 1e-20f,
                                 rotate ? rope : RowRotation{}, round},
                   rows % 3 + 1);
          ASSERT_EQ(std::memcmp(expected.bytes(), found.bytes(), static_cast<size_t>(bytes)), 0)
              << table->isa << " rows " << rows << " cols " << cols << " variant " << variant;
        }
      }
    }
  }
}

TEST(GatherRows, CopiesTheListedRows) {
  Random random;
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : RowCounts()) {
      for (int32_t cols : {1, 7, 100}) {
        const GuardedFloats x(random.Normals(40 * cols));
        const GuardedFloats y(std::vector<float>(static_cast<size_t>(rows * cols)));
        std::vector<int32_t> from;
        for (int32_t r = 0; r < rows; ++r) from.push_back(random.Int(0, 39));
        RunParts(table->gather_rows, GatherRowsArgs{&rows, from.data(), x.data(), y.data(), cols},
                 rows % 3 + 1);
        for (int32_t r = 0; r < rows; ++r) {
          for (int32_t c = 0; c < cols; ++c) {
            ASSERT_TRUE(SameBits(y.data()[r * cols + c],
                                 x.data()[from[static_cast<size_t>(r)] * cols + c]));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
