// Router and Engram ops: every table against the published examples and the scalar reference.
#include "backend/cpu/kernel_test.h"

namespace deepinfer {
namespace {

using Floats = std::vector<float>;

struct Choice {
  std::vector<int32_t> ids;
  Floats weights;
};

Choice Route(const KernelTable& table, const Floats& logits, const Floats& bias, int32_t topk,
             bool normalize, int parts) {
  const int32_t n_experts = static_cast<int32_t>(bias.size());
  const int32_t rows = static_cast<int32_t>(logits.size() / bias.size());
  const GuardedFloats guarded(logits);
  const GuardedBuffer bias_bytes(static_cast<int64_t>(4 * bias.size()));
  std::memcpy(bias_bytes.bytes(), bias.data(), 4 * bias.size());
  const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(topk);
  Choice c = {std::vector<int32_t>(n), Floats(n)};
  RunParts(table.route,
           RouteArgs{&rows, guarded.data(), bias_bytes.bytes(), c.ids.data(), c.weights.data(),
                     n_experts, topk, normalize, 1.5f},
           parts);
  return c;
}

// Spec 03 section 6.7.
TEST(Route, PublishedExample) {
  for (const KernelTable* table : VectorTables()) {
    const Choice c =
        Route(*table, {2, -1, 0.5f, 3, 0, -4, 1, 20}, {0, 0.9f, 0, 0, 0, 0, -0.5f, -3}, 3, true, 1);
    // Best first: biased scores 1.746, 1.472 (expert 7), 1.4597 (expert 1) and 1.4584 (expert 0).
    EXPECT_EQ(c.ids, (std::vector<int32_t>{3, 7, 1})) << table->isa;
    ExpectNear({0.38641003f, 0.98972386f, 0.12386617f}, c.weights, 3e-7f, 0, table->isa);
  }
}

// The score of every logit, one expert and no normalisation: 4 ulps of fp32 against double.
TEST(Route, ScoresAreAccurateOverTheWholeRange) {
  for (const KernelTable* table : VectorTables()) {
    for (float z = -86; z < 100; z += 0.037f) {
      const Choice c = Route(*table, {z}, {0}, 1, false, 1);
      const double expected = 1.5 * std::sqrt(z > 20 ? double{z} : std::log1p(std::exp(double{z})));
      ASSERT_NEAR(c.weights[0], expected, 5e-7 * expected) << table->isa << " " << z;
    }
  }
}

TEST(Route, EqualScoresGoToTheLowerId) {
  for (const KernelTable* table : VectorTables()) {
    for (int32_t n : {5, 16, 40}) {
      const Choice c = Route(*table, Floats(static_cast<size_t>(n), 0.25f),
                             Floats(static_cast<size_t>(n), -0.0f), 5, true, 1);
      EXPECT_EQ(c.ids, (std::vector<int32_t>{0, 1, 2, 3, 4})) << table->isa;
    }
  }
}

// A NaN logit neither crashes nor keeps the others out.
TEST(Route, NanIsChosenLastAndSpoilsTheWeights) {
  Floats logits(20, 1.0f), bias(20);
  std::vector<const KernelTable*> tables = VectorTables();
  tables.push_back(&ReferenceKernels());
  for (const KernelTable* table : tables) {
    EXPECT_FALSE(std::isnan(Route(*table, logits, bias, 3, true, 1).weights[0])) << table->isa;
    for (bool in_bias : {false, true}) {
      for (size_t e : {0, 7, 19}) {
        Floats bad_logits = logits, bad_bias = bias;
        (in_bias ? bad_bias : bad_logits)[e] = NAN;
        const Choice c = Route(*table, bad_logits, bad_bias, 3, true, 1);
        EXPECT_EQ(c.ids[2], e == 0 ? 3 : 2) << table->isa;
        for (float weight : c.weights) EXPECT_TRUE(std::isnan(weight)) << table->isa;
      }
    }
  }
}

TEST(Route, NearTheReferenceAndTheSameForEveryRowCount) {
  std::printf("seed %u\n", kSeed);
  Random random;
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : RowCounts()) {
      if (rows == 0) continue;
      for (int32_t n : {6, 8, 17, 64, 100}) {
        // Logits on a grid of 1/64: different scores differ by more than the kernels' accuracy.
        Floats logits = random.Integers(int64_t{rows} * n, 300);
        for (float& z : logits) z /= 64;
        const Floats bias(static_cast<size_t>(n));
        const Choice expected = Route(ReferenceKernels(), logits, bias, 6, true, 1);
        const Choice found = Route(*table, logits, bias, 6, true, rows % 3 + 1);
        ASSERT_EQ(expected.ids, found.ids) << table->isa << " rows " << rows << " experts " << n;
        ExpectNear(expected.weights, found.weights, 1e-6f, 0, table->isa);
        const Choice alone =
            Route(*table, Floats(logits.end() - n, logits.end()), bias, 6, true, 1);
        ASSERT_EQ(std::memcmp(alone.weights.data(), &*(found.weights.end() - 6), 24), 0);
      }
    }
  }
}

// ---- Engram ----

struct Gathered {
  Floats y;
  Fault fault;
};

Gathered Gather(const KernelTable& table, const GuardedBuffer& codes, const GuardedBuffer& scales,
                const std::vector<int64_t>& ids, int32_t columns, int32_t dim, bool round,
                int parts) {
  const int32_t rows = static_cast<int32_t>(ids.size()) / columns;
  const WeightView view = {codes.bytes(),
                           scales.bytes(),
                           DType::kFp8Row32,
                           codes.size_bytes() / dim,
                           dim,
                           dim,
                           dim / 32,
                           0};
  const GuardedFloats y(Floats(ids.size() * static_cast<size_t>(dim)));
  Gathered g = {{}, {Fault::kNone, 0, 0}};
  RunParts(table.engram_gather,
           EngramGatherArgs{&rows, ids.data(), view, y.data(), columns, dim, 14, round, &g.fault},
           parts);
  g.y = y.values();
  return g;
}

// All codes, all scales but NaN; codes and scales at odd addresses that end at guard pages.
TEST(EngramGather, EqualsTheReference) {
  Random random;
  constexpr int32_t kTableRows = 255, kColumns = 3;
  for (int32_t dim : {32, 96, 256}) {
    const GuardedBuffer codes(int64_t{kTableRows} * dim), scales(kTableRows * dim / 32);
    for (int64_t i = 0; i < codes.size_bytes(); ++i) codes.bytes()[i] = static_cast<uint8_t>(i);
    for (int64_t i = 0; i < scales.size_bytes(); ++i) {
      scales.bytes()[i] = static_cast<uint8_t>(i * 7 % 255);
    }
    for (const KernelTable* table : VectorTables()) {
      for (int32_t rows : RowCounts()) {
        std::vector<int64_t> ids;
        for (int32_t i = 0; i < rows * kColumns; ++i) ids.push_back(i * 11 % kTableRows);
        for (bool round : {false, true}) {
          const Gathered expected =
              Gather(ReferenceKernels(), codes, scales, ids, kColumns, dim, round, 1);
          const Gathered found =
              Gather(*table, codes, scales, ids, kColumns, dim, round, rows % 3 + 1);
          ExpectSame(expected.y, found.y,
                     std::string(table->isa) + " rows " + std::to_string(rows));
          ASSERT_EQ(found.fault.kind, Fault::kNone);
        }
      }
    }
  }
}

TEST(EngramGather, NanScaleIsReported) {
  const GuardedBuffer codes(64 * 5), scales(2 * 5);
  std::memset(codes.bytes(), 0x38, 64 * 5);
  std::memset(scales.bytes(), 127, 2 * 5);
  scales.bytes()[7] = 255;  // row 3
  for (const KernelTable* table : VectorTables()) {
    const Gathered g = Gather(*table, codes, scales, {0, 3, 1, 2}, 2, 64, true, 2);
    EXPECT_EQ(g.fault.kind, Fault::kEngramScaleNan);
    EXPECT_EQ(g.fault.layer, 14);
    EXPECT_EQ(g.fault.index, 3);
    EXPECT_TRUE(std::isnan(g.y[127]));
  }
}

struct GateResult {
  Floats streams, gate;
};

GateResult Gate(const KernelTable& table, const Floats& streams, const Floats& kv, const Floats& q,
                const Floats& k, const std::vector<uint8_t>& dead, int32_t n_streams, bool round,
                int parts) {
  const int32_t rows = static_cast<int32_t>(dead.size());
  const int32_t hidden = static_cast<int32_t>(q.size()) / n_streams;
  const GuardedBuffer q_weight(ToBf16(q)), k_weight(ToBf16(k));
  const GuardedFloats h(streams), keys(kv);
  Floats gate(static_cast<size_t>(rows * n_streams), -1.0f);
  RunParts(table.engram_gate,
           EngramGateArgs{&rows, h.data(), keys.data(), q_weight.bytes(), k_weight.bytes(),
                          dead.data(), gate.data(), n_streams, hidden, 1e-20f, round},
           parts);
  return {h.values(), gate};
}

// Spec 03 section 6.6.
TEST(EngramGate, PublishedExample) {
  for (const KernelTable* table : VectorTables()) {
    const GateResult g = Gate(*table, {1, 2, -1, 0.5f}, {0.5f, 1, 1, -2, 0.25f, -0.5f, 1, 2},
                              {1, 1.5f, 0.5f, 1}, {1, 1, 1, 1}, {0}, 1, false, 1);
    ExpectNear({0.689974487f}, g.gate, 3e-7f, 0, table->isa);
    ExpectNear({1.172493577f, 1.655012727f, -0.310025513f, 1.879948974f}, g.streams, 1e-6f, 0,
               table->isa);
  }
}

TEST(EngramGate, DeadRowsKeepTheirBits) {
  for (const KernelTable* table : VectorTables()) {
    const GateResult g =
        Gate(*table, {1.2345f, -0.0f}, {1, 1, NAN, INFINITY}, {1, 1}, {1, 1}, {1}, 1, true, 1);
    ExpectSame({1.2345f, -0.0f}, g.streams, table->isa);
    ExpectSame({0}, g.gate, table->isa);
  }
}

// A dot product of zero still opens or closes the gate a little, by the sign of the zero.
TEST(EngramGate, ZeroDot) {
  for (const KernelTable* table : VectorTables()) {
    const GateResult g = Gate(*table, {1, 1, 0, 0}, {0, 0, 1, 1, 0, 0, 0, 0}, Floats(4, 1),
                              Floats(4, 1), {0}, 1, false, 1);
    ExpectNear({0.50025f}, g.gate, 1e-6f, 0, table->isa);
  }
}

// The gate's dot product sums in another order than the reference; its limit is absolute because
// products of both signs cancel. With rounding a stream may be one bf16 ulp away.
TEST(EngramGate, NearTheReferenceAndTheSameForEveryRowCount) {
  Random random;
  for (const KernelTable* table : VectorTables()) {
    for (int32_t rows : RowCounts()) {
      for (int32_t hidden : {5, 64, 96, 160}) {
        const Floats streams = random.Bf16s(int64_t{rows} * 4 * hidden);
        const Floats kv = random.Bf16s(int64_t{rows} * 5 * hidden);
        const Floats q = random.Bf16s(4 * hidden), k = random.Bf16s(4 * hidden);
        std::vector<uint8_t> dead;
        for (int32_t r = 0; r < rows; ++r) dead.push_back(r % 5 == 4);
        for (bool round : {false, true}) {
          const GateResult expected =
              Gate(ReferenceKernels(), streams, kv, q, k, dead, 4, round, 1);
          const GateResult found = Gate(*table, streams, kv, q, k, dead, 4, round, rows % 3 + 1);
          const std::string what = std::string(table->isa) + " rows " + std::to_string(rows) +
                                   " hidden " + std::to_string(hidden);
          ExpectNear(expected.gate, found.gate, 0, 1e-5f, what);
          ExpectNear(expected.streams, found.streams, round ? 1.0f / 128 : 0, 5e-5f, what);
          if (rows == 0) continue;
          const GateResult alone =
              Gate(*table, Floats(streams.end() - 4 * hidden, streams.end()),
                   Floats(kv.end() - 5 * hidden, kv.end()), q, k, {dead.back()}, 4, round, 1);
          ASSERT_EQ(std::memcmp(alone.streams.data(), &*(found.streams.end() - 4 * hidden),
                                alone.streams.size() * 4),
                    0)
              << what;
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
