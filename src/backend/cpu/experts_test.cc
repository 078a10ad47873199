// Routed and shared experts of every instruction set against the scalar reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "backend/cpu/matrix_test_util.h"

namespace deepinfer {
namespace {

constexpr int32_t kExperts = 6, kTopk = 2, kHidden = 256, kInter = 128;

// Tables that multiply bf16 values on tiles are tested with such values.
bool HasTiles(const KernelTable& table) { return std::string(table.isa) == "amx"; }

// ExpertPairs with memory of its own, for n_rows rows.
struct Pairs {
  explicit Pairs(int32_t n_rows, int32_t n_experts = kExperts, int32_t topk = kTopk)
      : active(static_cast<size_t>(n_experts), -7),
        begin(static_cast<size_t>(n_experts) + 1, -7),
        rows(static_cast<size_t>(n_rows * topk), -7),
        weights(rows.size(), -7.0f) {}
  int32_t n_active = -7;
  std::vector<int32_t> active, begin, rows;
  std::vector<float> weights;

  ExpertPairs view() {
    return {&n_active, active.data(), begin.data(), rows.data(), weights.data()};
  }
};

struct Choice {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

// Two different experts a row; expert 3 is never chosen, so that there is a gap.
Choice RandomChoice(int32_t n_rows, Random* random) {
  constexpr int32_t kUsed[5] = {0, 1, 2, 4, 5};
  Choice c;
  for (int32_t r = 0; r < n_rows; ++r) {
    const int first = random->Int(0, 4), second = (first + random->Int(1, 4)) % 5;
    c.ids.insert(c.ids.end(), {kUsed[first], kUsed[second]});
    c.weights.insert(c.weights.end(), {0.25f * static_cast<float>(random->Int(1, 4)), 0.5f});
  }
  return c;
}

void Group(const KernelTable& table, const Choice& c, int32_t n_rows, Pairs* pairs) {
  const GroupPairsArgs args = {&n_rows,  c.ids.data(), c.weights.data(),
                               kExperts, kTopk,        pairs->view()};
  RunParts(table.group_pairs, args, 2);
}

TEST(Experts, PairsAreGroupedAsInTheReference) {
  Random random(1);
  for (const KernelTable* table : VectorTables()) {
    for (int32_t n_rows : RowCounts()) {
      const Choice c = RandomChoice(n_rows, &random);
      Pairs expected(n_rows), found(n_rows);
      Group(ReferenceKernels(), c, n_rows, &expected);
      Group(*table, c, n_rows, &found);
      ASSERT_EQ(found.n_active, expected.n_active);
      const auto n = static_cast<size_t>(expected.n_active);
      EXPECT_TRUE(std::equal(found.active.begin(), found.active.begin() + static_cast<int64_t>(n),
                             expected.active.begin()));
      EXPECT_TRUE(std::equal(found.begin.begin(), found.begin.begin() + static_cast<int64_t>(n) + 1,
                             expected.begin.begin()));
      EXPECT_EQ(found.rows, expected.rows);
      EXPECT_EQ(found.weights, expected.weights);
    }
  }
}

struct Experts {
  std::vector<TestWeight> storage;
  std::vector<ExpertWeights> views;
};

Experts RandomExperts(DType dtype, int count, Values values, Random* random) {
  Experts experts;
  for (int e = 0; e < count; ++e) {
    experts.storage.push_back(RandomWeight(dtype, kInter, kHidden, values, random));
    experts.storage.push_back(RandomWeight(dtype, kInter, kHidden, values, random));
    experts.storage.push_back(RandomWeight(dtype, kHidden, kInter, values, random));
    const size_t n = experts.storage.size();
    experts.views.push_back(
        {experts.storage[n - 3].view, experts.storage[n - 2].view, experts.storage[n - 1].view});
  }
  return experts;
}

struct GateUpCase {
  float limit = 10, fp8_max = 448;
  bool round = true, weighted = true;
  WeightDecode decode = WeightDecode::kAsStored;
  bool fp8_inputs = false;

  // [pairs, inter], pairs in the order of `pairs`.
  std::vector<float> Run(const KernelTable& table, Pairs* pairs, const Experts& experts,
                         const float* x, int threads = 1) const {
    const int64_t n_pairs = pairs->begin[static_cast<size_t>(pairs->n_active)];
    const int64_t stride = ExpertScratchFloats(kHidden);
    const GuardedFloats scratch(std::vector<float>(static_cast<size_t>(threads * stride)));
    const GuardedFloats act(std::vector<float>(static_cast<size_t>(n_pairs * kInter), NAN));
    GateUpArgs args = {.pairs = pairs->view(),
                       .experts = experts.views.data(),
                       .x = x,
                       .act = act.data(),
                       .hidden = kHidden,
                       .inter = kInter,
                       .limit = limit,
                       .fp8_max = fp8_max,
                       .decode = decode,
                       .round = round,
                       .bf16_inputs = HasTiles(table),
                       .fp8_inputs = fp8_inputs,
                       .scratch = scratch.data(),
                       .scratch_stride = stride};
    if (!weighted) args.pairs.weights = nullptr;
    RunParts(table.gate_up, args, threads);
    return act.values();
  }
};

// The gate and up products are exact here, so what is left is exp, one division and two products: 8
// roundings of 2^-24 and the errors of both exp, 2 ulp together.
TEST(Experts, GateUpIsWithinExpOfTheReference) {
  Random random(2);
  for (DType dtype : {DType::kFp4Row32, DType::kFp8Tile32, DType::kBf16}) {
    const Experts experts = RandomExperts(dtype, kExperts, Values::kExact, &random);
    std::vector<float> x = random.Integers(65 * kHidden, 4);
    for (float& v : x) v *= 0.03125f;  // gates between about -8 and 8
    const Choice c = RandomChoice(65, &random);
    Pairs pairs(65);
    Group(ReferenceKernels(), c, 65, &pairs);
    for (const KernelTable* table : VectorTables()) {
      for (float limit : {0.0f, 0.5f, 10.0f}) {
        GateUpCase g = {.limit = limit, .fp8_max = 0, .round = false, .fp8_inputs = limit == 0.5f};
        const std::vector<float> expected = g.Run(ReferenceKernels(), &pairs, experts, x.data());
        ExpectNear(expected, g.Run(*table, &pairs, experts, x.data(), 3), 0x1p-20f, 0, table->isa);
        g.weighted = false;
        ExpectNear(g.Run(ReferenceKernels(), &pairs, experts, x.data()),
                   g.Run(*table, &pairs, experts, x.data(), 2), 0x1p-20f, 0, table->isa);
      }
    }
  }
}

// With the roundings of the release a last bit of exp may move a value over a bf16 tie, then over
// an e4m3 tie: one step of 2^-3 of the value, in very few places. Where the products are exact
// nothing else may differ.
TEST(Experts, RoundedAndQuantisedGateUpFlipsAlmostNowhere) {
  Random random(3);
  const Experts experts = RandomExperts(DType::kFp4Row32, kExperts, Values::kExact, &random);
  std::vector<float> x = random.Integers(300 * kHidden, 4);
  for (float& v : x) v *= 0.0625f;
  const Choice c = RandomChoice(300, &random);
  Pairs pairs(300);
  Group(ReferenceKernels(), c, 300, &pairs);
  for (const KernelTable* table : VectorTables()) {
    for (float fp8_max : {448.0f, 224.0f}) {
      const GateUpCase g = {.limit = 10, .fp8_max = fp8_max, .fp8_inputs = fp8_max == 448};
      const std::vector<float> expected = g.Run(ReferenceKernels(), &pairs, experts, x.data());
      const std::vector<float> found = g.Run(*table, &pairs, experts, x.data());
      ExpectNear(expected, found, 0.13f, 0, table->isa);
      int64_t flips = 0;
      for (size_t i = 0; i < found.size(); ++i) flips += found[i] != expected[i] ? 1 : 0;
      EXPECT_LE(flips, static_cast<int64_t>(found.size()) / 1000) << table->isa;
    }
  }
}

// A weight whose output o is values[o % values.size()] * x[0].
TestWeight FirstColumn(const std::vector<float>& values) {
  std::vector<uint8_t> data(kInter * kHidden * 4, 0);
  for (size_t o = 0; o < kInter; ++o) {
    std::memcpy(data.data() + o * kHidden * 4, &values[o % values.size()], 4);
  }
  return MakeWeight(DType::kF32, kInter, kHidden, data, {});
}

// Expert e has gate products kProducts[e], output o the up product kProducts[o % 16]: every pair of
// them is clamped as the reference clamps, NaN and infinity included. Without a limit nothing is
// clamped.
TEST(Experts, ClampHoldsForLargeInfiniteAndNanProducts) {
  const std::vector<float> products = {0.0f,     9.96875f,  10.0f,   10.0625f,  12.0f,    1e30f,
                                       INFINITY, NAN,       -10.0f,  -10.0625f, -9.9375f, -12.0f,
                                       -1e30f,   -INFINITY, -100.0f, 0.5f};
  const auto n = static_cast<int32_t>(products.size());
  Experts experts;
  Pairs pairs(1, n, n);
  pairs.n_active = n;
  for (int32_t e = 0; e < n; ++e) {
    const auto i = static_cast<size_t>(e);
    experts.storage.push_back(FirstColumn({products[i]}));
    experts.storage.push_back(FirstColumn(products));
    experts.views.push_back({experts.storage[2 * i].view, experts.storage[2 * i + 1].view, {}});
    pairs.active[i] = pairs.begin[i] = e;
    pairs.rows[i] = 0;
    pairs.weights[i] = 0.75f;
  }
  pairs.begin[products.size()] = n;
  std::vector<float> x(kHidden, 0.0f);
  x[0] = 1.0f;
  for (const KernelTable* table : VectorTables()) {
    for (float limit : {0.0f, 10.0f}) {
      const GateUpCase g = {.limit = limit, .fp8_max = 0, .round = false};
      const std::vector<float> expected = g.Run(ReferenceKernels(), &pairs, experts, x.data());
      const std::vector<float> found = g.Run(*table, &pairs, experts, x.data());
      for (size_t i = 0; i < found.size(); ++i) {
        const float gate = products[i / kInter], up = products[i % kInter % products.size()];
        SCOPED_TRACE(testing::Message()
                     << table->isa << " gate " << gate << " up " << up << " limit " << limit);
        if (std::isfinite(expected[i])) {
          ASSERT_NEAR(found[i], expected[i], std::fabs(expected[i]) * 0x1p-20f);
        } else {
          ASSERT_TRUE(found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])));
        }
      }
    }
  }
}

// The worked SwiGLU example of spec 03 section 6.7, weight 0.3, rounded to bf16.
TEST(Experts, WorkedExample) {
  Experts experts;
  experts.storage.push_back(FirstColumn({12, -12, 1, 0.5f}));
  experts.storage.push_back(FirstColumn({11, -11, 2, -0.25f}));
  experts.views.push_back({experts.storage[0].view, experts.storage[1].view, {}});
  std::vector<float> x(kHidden, 0.0f);
  x[0] = 1.0f;
  Pairs pairs(1, 1, 1);
  pairs.n_active = 1;
  pairs.active[0] = 0;
  pairs.begin = {0, 1};
  pairs.rows[0] = 0;
  pairs.weights[0] = 0.3f;
  for (const KernelTable* table : VectorTables()) {
    const std::vector<float> act =
        GateUpCase{.limit = 10, .fp8_max = 0}.Run(*table, &pairs, experts, x.data());
    EXPECT_EQ(act[0], 30.0f) << table->isa;
    EXPECT_EQ(act[1], RoundBf16(0.00022125244f)) << table->isa;
    EXPECT_EQ(act[2], 0.439453125f) << table->isa;
    EXPECT_EQ(act[3], RoundBf16(-0.0233154297f)) << table->isa;
  }
}

// Pair by pair, whatever the rows, the threads and the block of 64: the same bits.
TEST(Experts, GateUpRowsAreIndependent) {
  Random random(4);
  for (DType dtype : {DType::kFp4Row32, DType::kFp8Tile32}) {
    const Experts experts = RandomExperts(dtype, kExperts, Values::kAny, &random);
    const bool fp4 = dtype == DType::kFp4Row32;
    const GuardedFloats x(Quantised(random.Bf16s(300 * kHidden), kHidden));
    const GateUpCase g = {.decode = fp4 ? WeightDecode::kAsStored : WeightDecode::kHalvedFp8,
                          .fp8_inputs = fp4};
    const Choice c = RandomChoice(300, &random);
    for (const KernelTable* table : VectorTables()) {
      std::vector<std::vector<float>> alone;  // [row * topk + place of the expert by id]
      for (int32_t r = 0; r < 300; ++r) {
        Choice one;
        one.ids.assign(c.ids.begin() + r * kTopk, c.ids.begin() + (r + 1) * kTopk);
        one.weights.assign(c.weights.begin() + r * kTopk, c.weights.begin() + (r + 1) * kTopk);
        Pairs pairs(1);
        Group(*table, one, 1, &pairs);
        const std::vector<float> act = g.Run(*table, &pairs, experts, x.data() + r * kHidden);
        alone.emplace_back(act.begin(), act.begin() + kInter);
        alone.emplace_back(act.begin() + kInter, act.end());
      }
      for (int32_t n_rows : RowCounts()) {
        Pairs pairs(n_rows);
        Group(*table, c, n_rows, &pairs);
        const std::vector<float> act = g.Run(*table, &pairs, experts, x.data(), 1 + n_rows % 3);
        std::vector<int> seen(static_cast<size_t>(n_rows), 0);
        for (size_t p = 0; p < pairs.rows.size(); ++p) {
          const auto r = static_cast<size_t>(pairs.rows[p]);
          const std::vector<float>& expected = alone[r * kTopk + static_cast<size_t>(seen[r]++)];
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(),
                                 act.begin() + static_cast<int64_t>(p) * kInter))
              << table->isa << " rows " << n_rows << " pair " << p;
        }
      }
    }
  }
}

std::vector<float> RunDown(const KernelTable& table, Pairs* pairs, const Experts& experts,
                           const float* act, int32_t n_rows, bool round, int threads,
                           bool fp8_inputs = false) {
  const int64_t stride = ExpertScratchFloats(kInter);
  const GuardedFloats scratch(std::vector<float>(static_cast<size_t>(threads * stride)));
  const GuardedFloats y(std::vector<float>(static_cast<size_t>(n_rows) * kHidden, NAN));
  const DownArgs args = {.n_rows = &n_rows,
                         .pairs = pairs->view(),
                         .experts = experts.views.data(),
                         .act = act,
                         .y = y.data(),
                         .hidden = kHidden,
                         .inter = kInter,
                         .round = round,
                         .bf16_inputs = HasTiles(table),
                         .fp8_inputs = fp8_inputs,
                         .scratch = scratch.data(),
                         .scratch_stride = stride};
  RunParts(table.down, args, threads);
  return y.values();
}

TEST(Experts, DownIsBitEqualWhereSumsAreExact) {
  Random random(5);
  for (DType dtype : {DType::kFp4Row32, DType::kFp8Tile32, DType::kBf16}) {
    const Experts experts = RandomExperts(dtype, kExperts, Values::kExact, &random);
    const GuardedFloats act(random.Integers(300 * kTopk * kInter, 4));
    for (int32_t n_rows : RowCounts()) {
      const Choice c = RandomChoice(n_rows, &random);
      Pairs pairs(n_rows);
      Group(ReferenceKernels(), c, n_rows, &pairs);
      for (const KernelTable* table : VectorTables()) {
        for (bool round : {false, true}) {
          const std::vector<float> expected =
              RunDown(ReferenceKernels(), &pairs, experts, act.data(), n_rows, round, 1);
          for (bool fp8_inputs : {false, true}) {
            ExpectSame(expected,
                       RunDown(*table, &pairs, experts, act.data(), n_rows, round, 1 + n_rows % 3,
                               fp8_inputs),
                       table->isa);
          }
        }
      }
    }
  }
}

// Inexact sums: 300 rows at once against every row alone, and against the reference within the
// bound of a sum of kInter terms of magnitude below 6 * 2^1 * |act|.
TEST(Experts, DownRowsAreIndependent) {
  Random random(6);
  const Experts experts = RandomExperts(DType::kFp4Row32, 1, Values::kAny, &random);
  const std::vector<float> act = random.Bf16s(300 * kInter);
  Pairs all(300, 1, 1), one(1, 1, 1);
  for (Pairs* p : {&all, &one}) {
    p->n_active = 1;
    p->active[0] = 0;
    p->begin = {0, static_cast<int32_t>(p->rows.size())};
    for (size_t i = 0; i < p->rows.size(); ++i) p->rows[i] = static_cast<int32_t>(i);
  }
  const std::vector<float> expected =
      RunDown(ReferenceKernels(), &all, experts, act.data(), 300, false, 1);
  for (const KernelTable* table : VectorTables()) {
    const std::vector<float> y = RunDown(*table, &all, experts, act.data(), 300, false, 2);
    ExpectNear(expected, y, 0, kInter * 12 * 4 * (kInter + 6) * 0x1p-24f, table->isa);
    for (int64_t r = 0; r < 300; ++r) {
      const std::vector<float> alone =
          RunDown(*table, &one, experts, act.data() + r * kInter, 1, false, 1);
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * kHidden))
          << table->isa << " row " << r;
    }
  }
}

// Row 1 has no pair: its result is 0, not what was there before.
TEST(Experts, RowsWithoutAPairGiveZero) {
  Random random(7);
  const Experts experts = RandomExperts(DType::kFp4Row32, 1, Values::kAny, &random);
  const std::vector<float> act = random.Bf16s(kInter);
  Pairs pairs(1, 1, 1);
  pairs.n_active = 1;
  pairs.active[0] = 0;
  pairs.begin = {0, 1};
  pairs.rows[0] = 2;
  for (const KernelTable* table : VectorTables()) {
    const std::vector<float> y = RunDown(*table, &pairs, experts, act.data(), 3, false, 3);
    EXPECT_TRUE(std::all_of(y.begin(), y.begin() + 2 * kHidden, [](float v) { return v == 0.0f; }))
        << table->isa;
    EXPECT_TRUE(std::any_of(y.begin() + 2 * kHidden, y.end(), [](float v) { return v != 0.0f; }))
        << table->isa;
    pairs.n_active = 0;
    for (float v : RunDown(*table, &pairs, experts, act.data(), 3, false, 1)) EXPECT_EQ(v, 0.0f);
    pairs.n_active = 1;
  }
}

// A NaN scale anywhere is found, named by expert and tensor, and the expert stays unchecked.
TEST(Experts, NanScalesAreReported) {
  Random random(8);
  for (DType dtype : {DType::kFp4Row32, DType::kFp8Tile32, DType::kBf16}) {
    Experts experts = RandomExperts(dtype, kExperts, Values::kAny, &random);
    Pairs pairs(1);
    pairs.n_active = 2;
    pairs.active = {1, 4, -7, -7, -7, -7};
    for (const KernelTable* table : VectorTables()) {
      std::array<uint8_t, kExperts> checked{};
      Fault fault{};
      const CheckExpertsArgs args = {pairs.view(), experts.views.data(), checked.data(), 9, &fault};
      RunParts(table->check_experts, args, 3);
      EXPECT_EQ(fault.kind, Fault::kNone);
      EXPECT_EQ(checked, (std::array<uint8_t, kExperts>{0, 1, 0, 0, 1, 0}));
      if (dtype == DType::kBf16) continue;
      for (int tensor = 0; tensor < 3; ++tensor) {
        const GuardedBuffer& scale = *experts.storage[4 * 3 + static_cast<size_t>(tensor)].scale;
        const int64_t used =
            dtype == DType::kFp8Tile32 ? scale.size_bytes() / 3 * 2 : scale.size_bytes();
        for (int64_t i = 0; i < used; ++i) {
          const uint8_t saved = scale.bytes()[i];
          scale.bytes()[i] = 255;
          checked = {};
          fault = {};
          RunParts(table->check_experts, args, 2);
          scale.bytes()[i] = saved;
          ASSERT_EQ(fault.kind, Fault::kExpertScaleNan) << table->isa << " byte " << i;
          EXPECT_EQ(fault.layer, 9);
          EXPECT_EQ(fault.index, 4 * 3 + tensor);
          EXPECT_EQ(checked, (std::array<uint8_t, kExperts>{0, 1, 0, 0, 0, 0}));
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
