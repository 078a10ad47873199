// Sparse attention: every table against the published example, the scalar reference and, for what
// it decodes, the number formats themselves.
#include <memory>

#include "backend/cpu/kernel_test.h"

namespace deepinfer {
namespace {

using Floats = std::vector<float>;

constexpr int32_t kSequences = 3, kRowsPerPage = 16, kPages = 16;  // of each sequence
constexpr int32_t kCompressedRows = kRowsPerPage * kPages;

struct Shape {
  int32_t rows, heads, head_dim, window;
  RowFormat window_format, compressed_format;
  int32_t topk;  // 0: window only
};

// Random caches and rows. The caches end at guard pages, packed ones begin at odd addresses.
struct Case {
  Shape shape;
  int32_t ring;
  Floats q, sink;
  std::vector<int32_t> positions, seqs, slots, selected, n_selected, block_table;
  std::unique_ptr<GuardedBuffer> window_rows, compressed_rows, sink_bytes;

  Case(const Shape& s, Random* random) : shape(s), ring(s.window + s.rows) {
    q = random->Bf16s(int64_t{s.rows} * s.heads * s.head_dim);
    for (int32_t r = 0; r < s.rows; ++r) {
      positions.push_back(r % 4 == 3 ? random->Int(0, 5) : random->Int(s.window, 3 * s.window));
      seqs.push_back(random->Int(0, kSequences - 1));
      slots.push_back(random->Int(0, kSequences - 1));
      const int32_t n = r % 3 == 2 ? random->Int(0, s.topk) : s.topk;
      n_selected.push_back(n);
      // Ascending and distinct: every second or third row of the cache.
      const int32_t step = s.topk > 0 ? kCompressedRows / s.topk : 1;
      for (int32_t i = 0; i < s.topk; ++i) {
        selected.push_back(i < n ? i * step + random->Int(0, step - 1) : -1);
      }
    }
    for (int32_t i = 0; i < kSequences * kPages; ++i) block_table.push_back(i * 5 % 48);
    window_rows = Fill(s.window_format, kSequences * ring, random);
    compressed_rows = Fill(s.compressed_format, kSequences * kCompressedRows, random);
    sink = random->Normals(s.heads);
    sink_bytes = std::make_unique<GuardedBuffer>(sink);
  }

  std::unique_ptr<GuardedBuffer> Fill(RowFormat format, int32_t n, Random* random) const {
    auto cache = std::make_unique<GuardedBuffer>(RowBytes(format, shape.head_dim) * n);
    const Floats x = random->Bf16s(int64_t{n} * shape.head_dim);
    std::vector<int64_t> to(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) to[static_cast<size_t>(i)] = i;
    RunParts(ReferenceKernels().store_rows,
             StoreRowsArgs{&n, x.data(), to.data(), cache->bytes(), shape.head_dim, format, 448},
             1);
    return cache;
  }

  // Rows [first, first + n) of the case.
  Floats Run(const KernelTable& table, int32_t first, int32_t n, bool round, int parts) const {
    const int64_t values = int64_t{shape.heads} * shape.head_dim;
    const int64_t stride = (AttentionScratchFloats(shape.head_dim) + 15) / 16 * 16;
    Floats scratch(static_cast<size_t>(stride * parts), NAN);
    const GuardedFloats o(Floats(static_cast<size_t>(n * values), -7.0f));
    AttentionArgs a = {};
    a.n_rows = &n;
    a.q = q.data() + first * values;
    a.o = o.data();
    a.positions = positions.data() + first;
    a.row_seqs = seqs.data() + first;
    a.row_slots = slots.data() + first;
    a.window_rows = window_rows->bytes();
    a.window_format = shape.window_format;
    a.ring = ring;
    a.window = shape.window;
    a.compressed = {shape.topk > 0 ? compressed_rows->bytes() : nullptr, block_table.data(), kPages,
                    kRowsPerPage, shape.compressed_format};
    a.selected = selected.data() + int64_t{first} * shape.topk;
    a.n_selected = n_selected.data() + first;
    a.topk = shape.topk;
    a.sink = sink_bytes->bytes();
    a.heads = shape.heads;
    a.head_dim = shape.head_dim;
    a.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    a.round_p = a.round = round;
    a.scratch = scratch.data();
    a.scratch_stride = stride;
    RunParts(table.attention, a, parts);
    return o.values();
  }
};

// Outputs are averages of values up to about 4. In fp32 scores, exponentials and sums differ by a
// few ulps. With rounding a weight next to a bf16 tie may go the other way (2^-8 of one row), and
// so may the output; that is rare, so the mean square stays far below.
void ExpectClose(const Floats& expected, const Floats& found, bool round, const std::string& what) {
  ExpectNear(expected, found, round ? 1.0f / 128 : 0, round ? 0.02f : 1e-5f, what);
  double square = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    square += double{found[i] - expected[i]} * double{found[i] - expected[i]};
  }
  ASSERT_LE(square, 4e-7 * static_cast<double>(found.size() + 1)) << what;
}

void ExpectCase(const Shape& shape, Random* random) {
  const Case c(shape, random);
  for (bool round : {false, true}) {
    const Floats expected = c.Run(ReferenceKernels(), 0, shape.rows, round, 1);
    for (const KernelTable* table : VectorTables()) {
      const std::string what = std::string(table->isa) + " rows " + std::to_string(shape.rows) +
                               " heads " + std::to_string(shape.heads) + " head_dim " +
                               std::to_string(shape.head_dim) + (round ? " rounded" : "");
      const Floats found = c.Run(*table, 0, shape.rows, round, 1);
      ExpectClose(expected, found, round, what);
      // Threads and other rows change nothing, bit for bit.
      for (int parts : {2, 3, 16, 40}) {
        ExpectSame(found, c.Run(*table, 0, shape.rows, round, parts), what);
      }
      const size_t values = static_cast<size_t>(shape.heads * shape.head_dim);
      for (int32_t r = 0; r < shape.rows; ++r) {
        const Floats alone = c.Run(*table, r, 1, round, r % 3 + 1);
        ASSERT_EQ(
            std::memcmp(alone.data(), found.data() + static_cast<size_t>(r) * values, values * 4),
            0)
            << what << " row " << r;
      }
    }
  }
}

TEST(Attention, NearTheReferenceForAllRowCounts) {
  std::printf("seed %u\n", kSeed);
  Random random;
  for (int32_t rows : RowCounts()) {
    ExpectCase({rows, 3, 32, 20, RowFormat::kFp8Block32, RowFormat::kFp4Block16, 12}, &random);
    if (HasFatalFailure()) return;
  }
}

TEST(Attention, NearTheReferenceForAllFormatsAndShapes) {
  Random random;
  const RowFormat formats[] = {RowFormat::kF32, RowFormat::kFp8Block32, RowFormat::kFp4Block32,
                               RowFormat::kFp4Block16};
  for (RowFormat window : formats) {
    for (RowFormat compressed : formats) {
      ExpectCase({2, 5, 96, 70, window, compressed, 64}, &random);
      ExpectCase({3, 8, 160, 33, window, compressed, 96}, &random);
      if (HasFatalFailure()) return;
    }
  }
  ExpectCase({4, 13, 64, 128, RowFormat::kFp8Block32, RowFormat::kF32, 0}, &random);
  ExpectCase({1, 64, 512, 128, RowFormat::kFp8Block32, RowFormat::kFp4Block16, 128}, &random);
  // Unpacked rows may have any width.
  for (int32_t dim : {1, 2, 7, 40, 67}) {
    ExpectCase({3, 6, dim, 66, RowFormat::kF32, RowFormat::kF32, 64}, &random);
  }
}

// A window row and a compressed row beyond 4 GiB of their cache, written and read there.
TEST(Attention, CacheBeyond4GiB) {
  constexpr int32_t kDim = 512, kSlot = 9000000, kPage = kSlot / 64;
  constexpr int64_t kBytes = int64_t{kSlot + 64} * 528;
  static_assert(kBytes > (int64_t{1} << 32));
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  uint8_t* cache = static_cast<uint8_t*>(mapped);
  const int32_t one = 1, zero = 0, slot = kSlot, page = kPage;
  const int64_t row = kSlot;
  for (const KernelTable* table : VectorTables()) {
    const Floats x(kDim, 3.0f), q(kDim);
    const float sink = -1e30f;
    Floats scratch(static_cast<size_t>(AttentionScratchFloats(kDim))), o(kDim);
    RunParts(table->store_rows,
             StoreRowsArgs{&one, x.data(), &row, cache, kDim, RowFormat::kFp8Block32, 448}, 1);
    AttentionArgs a = {};
    a.n_rows = &one;
    a.q = q.data(), a.o = o.data();
    a.positions = a.row_seqs = &zero, a.row_slots = &slot;
    a.window_rows = cache, a.window_format = RowFormat::kFp8Block32;
    a.ring = a.window = 1;
    a.compressed = {cache, &page, 1, 64, RowFormat::kFp8Block32};
    a.selected = &zero, a.n_selected = &one, a.topk = 1;
    a.sink = reinterpret_cast<const uint8_t*>(&sink);
    a.heads = 1, a.head_dim = kDim, a.scale = 1;
    a.scratch = scratch.data();
    RunParts(table->attention, a, 1);
    ExpectSame(x, o, table->isa);
  }
  munmap(mapped, kBytes);
}

// ---- one row, one head, window only, from given bytes ----

Floats AttendWindow(const KernelTable& table, const Floats& q, RowFormat format,
                    const GuardedBuffer& rows, int32_t n, float scale, float sink, bool round) {
  const int32_t n_rows = 1, position = n - 1, zero = 0, dim = static_cast<int32_t>(q.size());
  Floats scratch(static_cast<size_t>(AttentionScratchFloats(dim))), o(q.size());
  AttentionArgs a = {};
  a.n_rows = &n_rows;
  a.q = q.data();
  a.o = o.data();
  a.positions = &position;
  a.row_seqs = a.row_slots = &zero;
  a.window_rows = rows.bytes();
  a.window_format = format;
  a.ring = a.window = n;
  a.sink = reinterpret_cast<const uint8_t*>(&sink);
  a.heads = 1;
  a.head_dim = dim;
  a.scale = scale;
  a.round_p = a.round = round;
  a.scratch = scratch.data();
  RunParts(table.attention, a, 1);
  return o;
}

// Spec 03 section 6.4.
TEST(Attention, PublishedExample) {
  const GuardedBuffer rows(Floats{1, 0, 0, 1, 0.5f, -0.5f});
  for (const KernelTable* table : VectorTables()) {
    ExpectSame({0.3125f, 0.359375f},
               AttendWindow(*table, {1, 2}, RowFormat::kF32, rows, 3, 0.5f, 0.3f, true),
               table->isa);
  }
}

// A row with score x beside one with score 0: the output is e^x / (1 + e^x), so what is wrong with
// the exponential shows. 4 ulps of fp32, of which the sum and the division take up to two.
TEST(Attention, ExponentialIsAccurate) {
  for (const KernelTable* table : VectorTables()) {
    for (float x = 0; x > -103; x -= 0.0137f) {
      const GuardedBuffer rows(Floats{0, 0, x, 1});
      const Floats o = AttendWindow(*table, {1, 0}, RowFormat::kF32, rows, 2, 1, -1e30f, false);
      const double e = std::exp(double{x}), expected = e / (1 + e);
      ASSERT_NEAR(o[1], expected, 4.8e-7 * expected + 0x1p-149) << table->isa << " " << x;
    }
    for (float x : {-104.0f, -1000.0f, -1e30f, -INFINITY}) {
      const GuardedBuffer rows(Floats{0, 0, x, 1});
      const Floats o = AttendWindow(*table, {1, 0}, RowFormat::kF32, rows, 2, 1, -1e30f, false);
      ASSERT_EQ(o[1], 0.0f) << table->isa << " " << x;
    }
  }
}

// With q = 0 and no sink a single row comes out as it was decoded: all codes under all scales. Also
// with rounding, where tiles may serve, unless values can be subnormal: those need not be bf16.
constexpr int kLeastNormalScale = 10;  // 2^-9, the smallest code, times 2^(10 - 127) is normal

void ExpectEveryCode(const KernelTable& table, bool round) {
  constexpr int kEnd = 246;  // from here on 448 * 2^(scale - 127) overflows
  for (int scale = round ? kLeastNormalScale : 0; scale < kEnd; ++scale) {
    const uint8_t byte = static_cast<uint8_t>(scale);
    const GuardedBuffer fp8(256 + 8), index(16 + 1);
    std::memset(fp8.bytes() + 256, byte, 8);
    index.bytes()[16] = byte;
    Floats fp8_values(256), index_values(32);
    for (int i = 0; i < 256; ++i) {
      const uint8_t code = static_cast<uint8_t>((i & 0x7f) == 0x7f ? 0 : i);  // NaN codes apart
      fp8.bytes()[i] = code;
      fp8_values[static_cast<size_t>(i)] = E4m3ToFloat(code) * Ue8m0ToFloat(byte);
    }
    for (int i = 0; i < 32; ++i) {
      if (i % 2 == 0) index.bytes()[i / 2] = static_cast<uint8_t>((i & 15) | ((i + 1) & 15) << 4);
      index_values[static_cast<size_t>(i)] =
          E2m1ToFloat(static_cast<uint8_t>(i & 15)) * Ue8m0ToFloat(byte);
    }
    ExpectNear(fp8_values,
               AttendWindow(table, Floats(256), RowFormat::kFp8Block32, fp8, 1, 1, -1e30f, round),
               0, 0, table.isa);
    ExpectNear(index_values,
               AttendWindow(table, Floats(32), RowFormat::kFp4Block32, index, 1, 1, -1e30f, round),
               0, 0, table.isa);
    if ((scale & 0x7f) == 0x7f) continue;
    const GuardedBuffer kv(16 + 2);  // two e4m3 scales, the second one 1
    std::memcpy(kv.bytes(), index.bytes(), 16);
    kv.bytes()[16] = byte, kv.bytes()[17] = 0x38;
    Floats kv_values(32);
    for (size_t i = 0; i < 32; ++i) {
      kv_values[i] = E2m1ToFloat(static_cast<uint8_t>(i & 15)) * (i < 16 ? E4m3ToFloat(byte) : 1);
    }
    ExpectNear(kv_values,
               AttendWindow(table, Floats(32), RowFormat::kFp4Block16, kv, 1, 1, -1e30f, round), 0,
               0, table.isa);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Attention, DecodesEveryCodeAndScale) {
  for (const KernelTable* table : VectorTables()) {
    ExpectEveryCode(*table, false);
    ExpectEveryCode(*table, true);
    if (HasFatalFailure()) return;
  }
}

TEST(Attention, NanCodesAndScalesPropagate) {
  for (const KernelTable* table : VectorTables()) {
    const GuardedBuffer rows(2 * 33);
    std::memset(rows.bytes(), 0x38, 66);
    rows.bytes()[32] = rows.bytes()[65] = 127;
    const Floats q(32, 1.0f);
    const auto output = [&] {
      return AttendWindow(*table, q, RowFormat::kFp8Block32, rows, 2, 1, 0, true)[5];
    };
    EXPECT_FALSE(std::isnan(output()));
    rows.bytes()[40] = 0xff;
    EXPECT_TRUE(std::isnan(output()));
    rows.bytes()[40] = 0x38, rows.bytes()[65] = 255;
    EXPECT_TRUE(std::isnan(output()));
  }
}

}  // namespace
}  // namespace deepinfer
