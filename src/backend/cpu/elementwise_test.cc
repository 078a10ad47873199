// Embedding, norms, rotary embedding, hyper-connections and pooling: every table against the
// published examples and the scalar reference, and every row against itself alone.
#include "backend/cpu/kernel_test.h"

namespace deepinfer {
namespace {

using Floats = std::vector<float>;

size_t Size(int64_t n) { return static_cast<size_t>(n); }

// Sizes of a row: below, at and off the multiples of every vector length.
constexpr int32_t kCols[] = {1, 7, 16, 63, 64, 96, 160};

// Limit for ops that sum many products in another order than the reference: 160 products of fp32,
// a few ulps. With rounding to bf16 a value next to a tie may go the other way: one bf16 ulp.
constexpr float kSumLimit = 4e-6f;
constexpr float kBf16Ulp = 1.0f / 128;

std::string What(const KernelTable& table, int32_t rows, int32_t cols, bool round) {
  return std::string(table.isa) + " rows " + std::to_string(rows) + " cols " +
         std::to_string(cols) + (round ? " rounded" : "");
}

// Calls check(table, rows, cols, round) for everything that a row-wise op is tested with.
template <class Check>
void ForAllShapes(Check check) {
  std::printf("seed %u\n", kSeed);
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : RowCounts()) {
      for (int32_t cols : kCols) {
        for (bool round : {false, true}) {
          check(*table, rows, cols, round);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Embed, EqualsTheReference) {
  Random random;
  ForAllShapes([&](const KernelTable& table, int32_t rows, int32_t cols, bool) {
    constexpr int32_t kStreams = 4, kVocabulary = 9;
    const GuardedBuffer weight(ToBf16(random.Normals(kVocabulary * cols)));
    std::vector<int32_t> ids;
    for (int32_t r = 0; r < rows; ++r) ids.push_back(random.Int(0, kVocabulary - 1));
    const WeightView view = {
        weight.bytes(), nullptr, DType::kBf16, kVocabulary, cols, 2 * cols, 0, 0};
    Floats streams[2], pre[2];
    for (int i = 0; i < 2; ++i) {
      streams[i].resize(Size(int64_t{rows} * kStreams * cols), -1.0f);
      pre[i].resize(Size(rows * kStreams), -1.0f);
      RunParts((i == 0 ? ReferenceKernels() : table).embed,
               EmbedArgs{&rows, ids.data(), view, streams[i].data(), pre[i].data(), kStreams},
               i == 0 ? 1 : rows % 3 + 1);
    }
    ExpectSame(streams[0], streams[1], What(table, rows, cols, false));
    ExpectSame(pre[0], pre[1], What(table, rows, cols, false));
  });
}

// The third row lies beyond 4 GiB: no offset may be kept in 32 bits.
TEST(Embed, LargeTable) {
  constexpr int64_t kStride = (int64_t{3} << 30) + 1, kBytes = 2 * kStride + 64;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const WeightView view = {
      static_cast<uint8_t*>(mapped), nullptr, DType::kBf16, 3, 4, kStride, 0, 0};
  const uint16_t one = 0x3f80;
  std::memcpy(static_cast<uint8_t*>(mapped) + 2 * kStride + 6, &one, 2);
  const int32_t rows = 1, id = 2;
  for (const KernelTable* table : VectorTables()) {
    Floats streams(4), pre(1);
    RunParts(table->embed, EmbedArgs{&rows, &id, view, streams.data(), pre.data(), 1}, 1);
    ExpectSame({0, 0, 0, 1}, streams, table->isa);
  }
  munmap(mapped, kBytes);
}

Floats RmsNorm(const KernelTable& table, const Floats& x, const GuardedBuffer& weight, int32_t rows,
               int32_t cols, bool round, int parts) {
  const GuardedFloats from(x), to(x);
  RunParts(table.rms_norm,
           RmsNormArgs{&rows, from.data(), weight.bytes(), to.data(), cols, 1e-20f, round}, parts);
  return to.values();
}

// Spec 03 section 6.5.
TEST(RmsNorm, PublishedExample) {
  const GuardedBuffer weight(ToBf16({1, 0.5f, 2, 0.25f}));
  for (const KernelTable* table : VectorTables()) {
    ExpectSame({0.43359375f, -0.43359375f, 0.43359375f, 0.43359375f},
               RmsNorm(*table, {1, -2, 0.5f, 4}, weight, 1, 4, true, 1), table->isa);
  }
}

TEST(RmsNorm, NearTheReferenceAndTheSameForEveryRowCount) {
  Random random;
  ForAllShapes([&](const KernelTable& table, int32_t rows, int32_t cols, bool round) {
    const Floats x = random.Normals(int64_t{rows} * cols);
    const GuardedBuffer weight(ToBf16(random.Normals(cols)));
    const std::string what = What(table, rows, cols, round);
    const Floats found = RmsNorm(table, x, weight, rows, cols, round, rows % 3 + 1);
    ExpectNear(RmsNorm(ReferenceKernels(), x, weight, rows, cols, round, 1), found,
               round ? kBf16Ulp : kSumLimit, 0, what);
    for (int32_t r = 0; r < rows; ++r) {
      const auto begin = x.begin() + int64_t{r} * cols;
      const Floats alone = RmsNorm(table, Floats(begin, begin + cols), weight, 1, cols, round, 1);
      ASSERT_EQ(std::memcmp(alone.data(), found.data() + int64_t{r} * cols, alone.size() * 4), 0)
          << what << " row " << r;
    }
  });
}

// The squares of small whole numbers have an exact sum: then nothing is left to differ.
TEST(RmsNorm, EqualsTheReferenceOnWholeNumbers) {
  Random random;
  ForAllShapes([&](const KernelTable& table, int32_t rows, int32_t cols, bool round) {
    const Floats x = random.Integers(int64_t{rows} * cols, 100);
    const GuardedBuffer weight(ToBf16(random.Normals(cols)));
    ExpectSame(RmsNorm(ReferenceKernels(), x, weight, rows, cols, round, 1),
               RmsNorm(table, x, weight, rows, cols, round, 2), What(table, rows, cols, round));
  });
}

// A row of released length: the sum of squares keeps fp32 accuracy.
TEST(RmsNorm, LongRow) {
  Random random;
  const Floats x = random.Normals(5120);
  const GuardedBuffer weight(ToBf16(random.Normals(5120)));
  for (const KernelTable* table : VectorTables()) {
    ExpectNear(RmsNorm(ReferenceKernels(), x, weight, 1, 5120, false, 1),
               RmsNorm(*table, x, weight, 1, 5120, false, 1), kSumLimit, 0, table->isa);
  }
}

// The second result is the quantiser's of the first, bit for bit.
TEST(RmsNorm, QuantisedAsByQuantRows) {
  Random random;
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : RowCounts()) {
      for (int32_t cols : {32, 96, 512}) {
        const GuardedFloats x(random.Normals(int64_t{rows} * cols));
        const GuardedBuffer weight(ToBf16(random.Normals(cols)));
        const GuardedFloats y(x.values()), quantised(x.values());
        for (float fp8_max : {448.0f, 224.0f}) {
          RunParts(table->rms_norm,
                   RmsNormArgs{&rows, x.data(), weight.bytes(), y.data(), cols, 1e-20f, true,
                               quantised.data(), fp8_max},
                   rows % 3 + 1);
          Floats expected(Size(int64_t{rows} * cols));
          RunParts(ReferenceKernels().quant_rows,
                   QuantRowsArgs{&rows, y.data(), expected.data(), cols, RowFormat::kFp8Block32,
                                 fp8_max},
                   1);
          ExpectSame(expected, quantised.values(), What(*table, rows, cols, true));
        }
        ExpectSame(RmsNorm(*table, x.values(), weight, rows, cols, true, 1), y.values(),
                   What(*table, rows, cols, true));
      }
    }
  }
}

TEST(Add, EqualsTheReferenceAlsoInPlaceAndWithNan) {
  Random random;
  ForAllShapes([&](const KernelTable& table, int32_t rows, int32_t cols, bool round) {
    Floats a = random.Normals(int64_t{rows} * cols), b = random.Normals(int64_t{rows} * cols);
    if (rows > 2) {
      a[1] = INFINITY, a[2] = 0x1p-140f, b[2] = 0;
      const uint32_t bits =
          0x7fffffff;  // a NaN that a carry out of the mantissa would turn into -0
      std::memcpy(&b[0], &bits, 4);
    }
    Floats expected(a.size());
    RunParts(ReferenceKernels().add,
             AddArgs{&rows, a.data(), b.data(), expected.data(), cols, round}, 1);
    const GuardedFloats left(a), right(b);
    RunParts(table.add, AddArgs{&rows, left.data(), right.data(), right.data(), cols, round},
             rows % 3 + 1);
    ExpectSame(expected, right.values(), What(table, rows, cols, round));
  });
}

TEST(Rope, EqualsTheReferenceBothWays) {
  Random random;
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : RowCounts()) {
      for (int32_t rope_dim : {2, 6, 8, 16, 64}) {
        const int32_t heads = 3, head_dim = rope_dim + 6, half = rope_dim / 2;
        const Floats x = random.Bf16s(int64_t{rows} * heads * head_dim);
        const GuardedFloats cosines(random.Normals(rows * half)),
            sines(random.Normals(rows * half));
        std::vector<int32_t> table_rows;
        for (int32_t r = 0; r < rows; ++r) table_rows.push_back(rows - 1 - r);
        for (int variant = 0; variant < 8; ++variant) {
          Floats expected = x;
          const GuardedFloats found(x);
          RopeArgs args = {&rows,
                           expected.data(),
                           heads,
                           head_dim,
                           {cosines.data(), sines.data(),
                            (variant & 1) != 0 ? table_rows.data() : nullptr, rope_dim},
                           (variant & 2) != 0,
                           (variant & 4) != 0};
          RunParts(ReferenceKernels().rope, args, 1);
          args.x = found.data();
          RunParts(table->rope, args, rows % 3 + 1);
          ExpectSame(expected, found.values(), What(*table, rows, rope_dim, args.round));
        }
      }
    }
  }
}

// ---- hyper-connections ----

struct MixResult {
  Floats pre, post, comb;
};

MixResult Mix(const KernelTable& table, const Floats& streams, const Floats& raw,
              const Floats& base, const Floats& scale, int32_t rows, int32_t hidden, int parts) {
  const int32_t n = 4;
  MixResult m = {Floats(Size(rows * n)), Floats(Size(rows * n)), Floats(Size(rows * n * n))};
  std::vector<uint8_t> base_bytes(base.size() * 4 + 1), scale_bytes(scale.size() * 4 + 1);
  std::memcpy(base_bytes.data() + 1, base.data(), base.size() * 4);
  std::memcpy(scale_bytes.data() + 1, scale.data(), scale.size() * 4);
  RunParts(table.mix,
           MixArgs{.n_rows = &rows,
                   .streams = streams.data(),
                   .raw = raw.data(),
                   .base = base_bytes.data() + 1,
                   .scale = scale_bytes.data() + 1,
                   .pre = m.pre.data(),
                   .post = m.post.data(),
                   .comb = m.comb.data(),
                   .n_streams = n,
                   .hidden = hidden,
                   .iterations = 20,
                   .hc_eps = 1e-6f,
                   .rms_eps = 1e-20f},
           parts);
  return m;
}

// Spec 03 section 6.5: streams of ones make the norm 1, so raw values are the mixes themselves.
TEST(Mix, PublishedExample) {
  const Floats raw = {0.5f, -1, 0.25f, 2,    0, 1,  -1, 0.5f, 2,     0, -1, 0.5f,
                      0,    1,  0.5f,  -2.f, 1, -1, 3,  0,    0.25f, 0, 0,  1.5f};
  Floats base(24);
  base[0] = 1;
  for (const KernelTable* table : VectorTables()) {
    const MixResult m = Mix(*table, Floats(64, 1.0f), raw, base, {1, 0.5f, 1}, 1, 16, 1);
    ExpectNear({0.81757545f, 0.26894245f, 0.56217754f, 0.88079804f}, m.pre, 0, 2e-7f, table->isa);
    ExpectNear({1, 1.2449187f, 0.75508136f, 1.12435305f}, m.post, 0, 3e-7f, table->isa);
    ExpectNear({0.6086447f, 0.1453111f, 0.02216142f, 0.2238819f, 0.1384251f, 0.6637858f, 0.166904f,
                0.03088418f, 0.1379514f, 0.03293683f, 0.7454478f, 0.08366293f, 0.1149779f,
                0.1579653f, 0.06548583f, 0.66157f},
               m.comb, 0, 1e-6f, table->isa);
  }
}

// The limit: the norm differs by a few ulps, mixes of about 1 pass it on, the Sinkhorn steps damp.
TEST(Mix, NearTheReferenceAndTheSameForEveryRowCount) {
  Random random;
  ForAllShapes([&](const KernelTable& table, int32_t rows, int32_t cols, bool round) {
    if (round) return;  // mixes are never rounded
    const Floats streams = random.Normals(int64_t{rows} * 4 * cols),
                 raw = random.Normals(rows * 24);
    const Floats base = random.Normals(24), scale = random.Normals(3);
    const std::string what = What(table, rows, cols, false);
    const MixResult expected = Mix(ReferenceKernels(), streams, raw, base, scale, rows, cols, 1);
    const MixResult found = Mix(table, streams, raw, base, scale, rows, cols, rows % 3 + 1);
    ExpectNear(expected.pre, found.pre, 1e-5f, 1e-7f, what);
    ExpectNear(expected.post, found.post, 1e-5f, 1e-7f, what);
    ExpectNear(expected.comb, found.comb, 1e-5f, 1e-7f, what);
    for (int64_t r = 0; r < rows; ++r) {
      const auto s = streams.begin() + r * 4 * cols, m = raw.begin() + r * 24;
      const MixResult alone =
          Mix(table, Floats(s, s + 4 * cols), Floats(m, m + 24), base, scale, 1, cols, 1);
      ASSERT_EQ(std::memcmp(alone.comb.data(), found.comb.data() + r * 16, 64), 0) << what;
      ASSERT_EQ(std::memcmp(alone.pre.data(), found.pre.data() + r * 4, 16), 0) << what;
      ASSERT_EQ(std::memcmp(alone.post.data(), found.post.data() + r * 4, 16), 0) << what;
    }
  });
}

TEST(Collapse, EqualsTheReference) {
  Random random;
  ForAllShapes([&](const KernelTable& table, int32_t rows, int32_t cols, bool round) {
    const GuardedFloats streams(random.Normals(int64_t{rows} * 4 * cols));
    const Floats pre = random.Normals(rows * 4);
    Floats expected(Size(int64_t{rows} * cols));
    const GuardedFloats found(expected);
    CollapseArgs args = {&rows, streams.data(), pre.data(), expected.data(), 4, cols, round};
    RunParts(ReferenceKernels().collapse, args, 1);
    args.y = found.data();
    RunParts(table.collapse, args, rows % 3 + 1);
    ExpectSame(expected, found.values(), What(table, rows, cols, round));
  });
}

// Spec 03 section 6.5, stream update of one channel.
TEST(Expand, PublishedExample) {
  const Floats comb = {0.6086447f, 0.1453111f,  0.02216142f, 0.2238819f,  0.1384251f, 0.6637858f,
                       0.166904f,  0.03088418f, 0.1379514f,  0.03293683f, 0.7454478f, 0.08366293f,
                       0.1149779f, 0.1579653f,  0.06548583f, 0.66157f};
  const Floats post = {1, 0.5f, 1.5f, 0.25f}, out = {0.5f};
  const int32_t rows = 1;
  for (const KernelTable* table : VectorTables()) {
    Floats streams = {1, 2, 3, 4};
    RunParts(table->expand,
             ExpandArgs{&rows, out.data(), post.data(), comb.data(), streams.data(), 4, 1, false},
             1);
    ExpectNear({2.25926065f, 2.45355463f, 3.60425615f, 3.30791903f}, streams, 1e-6f, 0, table->isa);
  }
}

TEST(Expand, EqualsTheReference) {
  Random random;
  ForAllShapes([&](const KernelTable& table, int32_t rows, int32_t cols, bool round) {
    const GuardedFloats out(random.Normals(int64_t{rows} * cols));
    const Floats post = random.Normals(rows * 4), comb = random.Normals(rows * 16);
    Floats expected = random.Normals(int64_t{rows} * 4 * cols);
    const GuardedFloats found(expected);
    ExpandArgs args = {&rows,           out.data(), post.data(), comb.data(),
                       expected.data(), 4,          cols,        round};
    RunParts(ReferenceKernels().expand, args, 1);
    args.streams = found.data();
    RunParts(table.expand, args, rows % 3 + 1);
    ExpectSame(expected, found.values(), What(table, rows, cols, round));
  });
}

// ---- pooling ----

// Groups complete at odd positions of two sequences whose tokens lie in a ring of 6.
struct PoolCase {
  std::vector<int32_t> group_rows, positions, row_slots;
};

Floats Pool(const KernelTable& table, const PoolCase& c, const Floats& kv, const Floats& score,
            int32_t cols, bool round, int parts) {
  const int32_t n_groups = static_cast<int32_t>(c.group_rows.size());
  const GuardedFloats from_kv(kv), from_score(score), to(Floats(Size(int64_t{n_groups} * cols)));
  RunParts(table.pool,
           PoolArgs{&n_groups, c.group_rows.data(), c.positions.data(), c.row_slots.data(),
                    from_kv.data(), from_score.data(), to.data(), 6, cols, round},
           parts);
  return to.values();
}

// Spec 03 section 6.6.
TEST(Pool, PublishedExample) {
  const PoolCase c = {{0}, {1}, {0}};
  const Floats kv = {1, -2, 3, 0.5f, 0, 0, 0, 0, 0, 0, 0, 0};
  const Floats score = {0, 2, 1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  for (const KernelTable* table : VectorTables()) {
    ExpectNear({2.4621172f, -1.8814353f}, Pool(*table, c, kv, score, 2, false, 1), 2e-7f, 0,
               table->isa);
    ExpectSame({2.46875f, -1.8828125f}, Pool(*table, c, kv, score, 2, true, 1), table->isa);
  }
}

TEST(Pool, NearTheReferenceAndTheSameForEveryGroupCount) {
  Random random;
  ForAllShapes([&](const KernelTable& table, int32_t groups, int32_t cols, bool round) {
    PoolCase c;
    for (int32_t g = 0; g < groups; ++g) {
      c.group_rows.push_back(groups - 1 - g);
      c.positions.push_back(2 * random.Int(0, 50) + 1);
      c.row_slots.push_back(random.Int(0, 1));
    }
    const Floats kv = random.Normals(12 * cols), score = random.Normals(12 * cols);
    const Floats found = Pool(table, c, kv, score, cols, round, groups % 3 + 1);
    // Two products of about 1 each: a few ulps of the larger one, or one bf16 ulp of the result.
    ExpectNear(Pool(ReferenceKernels(), c, kv, score, cols, round, 1), found, round ? kBf16Ulp : 0,
               2e-6f, What(table, groups, cols, round));
    if (groups == 0) return;
    PoolCase last = c;
    last.group_rows = {c.group_rows.back()};
    const Floats alone = Pool(table, last, kv, score, cols, round, 1);
    ASSERT_EQ(
        std::memcmp(alone.data(), found.data() + found.size() - alone.size(), 4 * alone.size()), 0);
  });
}

}  // namespace
}  // namespace deepinfer
