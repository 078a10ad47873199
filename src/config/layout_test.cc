#include "config/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"

namespace deepinfer {
namespace {

ModelConfig Config(const std::string& name) {
  if (name == "released")
    return ModelConfig::Load(DI_SOURCE_DIR "/tests/data/fixtures/config/config.json");
  return ModelConfig::Load(DI_SOURCE_DIR "/build/testdata/checkpoints/" + name + "/config.json");
}

std::string RefusalOf(const std::string& model, const std::string& layout, int64_t ranks,
                      int64_t batch_ranks = 0) {
  try {
    Layout(Config(model), {layout, ranks, batch_ranks});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Every one of `count` things has exactly one owner.
void ExpectCovers(const Cuts& cuts, int64_t count, int64_t ranks) {
  ASSERT_EQ(std::ssize(cuts), ranks + 1);
  EXPECT_EQ(cuts.front(), 0);
  EXPECT_EQ(cuts.back(), count);
  EXPECT_TRUE(std::is_sorted(cuts.begin(), cuts.end()));
}

TEST(Layout, CutsCoverEverythingOnce) {
  for (const char* model : {"released", "tiny"}) {
    const ModelConfig c = Config(model);
    for (const auto& [name, batch_ranks] :
         {std::pair{"ep", 0}, {"tp", 0}, {"tp8r", 0}, {"dp", 0}, {"tp", 4}, {"tp8r", 16}}) {
      for (int64_t ranks : {1, 2, 4, 8, 16, 32, 64}) {
        if (!RefusalOf(model, name, ranks, batch_ranks).empty()) continue;
        const Layout l(c, {name, ranks, batch_ranks});
        EXPECT_EQ(l.n_batches() * l.batch_size(), ranks);
        ExpectCovers(l.vocab(), c.vocab_size, l.batch_size());
        ExpectCovers(l.shared_inner(), c.moe_intermediate_size, l.batch_size());
        ExpectCovers(l.shared_out(), c.hidden_size, l.batch_size());
        ExpectCovers(l.heads(), c.num_attention_heads, l.attention_size());
        ExpectCovers(l.low(), c.o_groups * c.o_lora_rank, l.attention_size());
        ExpectCovers(l.out(), c.hidden_size, l.attention_size());
        ExpectCovers(l.group_columns(), c.num_attention_heads / c.o_groups * c.head_dim,
                     l.group_size());
        for (int layer = 0; layer < c.num_layers_and_stages(); ++layer) {
          int64_t next = 0;
          for (int r = 0; r < ranks; ++r) {
            EXPECT_EQ(l.experts(layer, r).begin, next);
            next = l.experts(layer, r).end;
          }
          EXPECT_EQ(next, c.n_experts(layer));
        }
      }
    }
  }
}

TEST(Layout, ReleasedSizesOn64Ranks) {
  const ModelConfig c = Config("released");
  const Layout tp8r(c, {"tp8r", 64}), tp(c, {"tp", 64}), ep(c, {"ep", 64});
  EXPECT_EQ(tp8r.attention_size(), 8);
  EXPECT_EQ(tp8r.group_size(), 1);
  EXPECT_EQ(tp.attention_size(), 64);
  EXPECT_EQ(tp.group_size(), 8);
  EXPECT_EQ(ep.attention_size(), 1);
  EXPECT_EQ(tp8r.attention_rank(13), 5);
  EXPECT_EQ(At(tp8r.heads(), 5), (Range{40, 48}));
  EXPECT_EQ(At(tp8r.low(), 5), (Range{5120, 6144}));  // its output group, whole
  EXPECT_EQ(At(tp.heads(), 9), (Range{9, 10}));
  EXPECT_EQ(At(tp.low(), 9), (Range{1152, 1280}));  // an eighth of group 1
  EXPECT_EQ(At(tp.out(), 63), (Range{5024, 5120}));
  EXPECT_EQ(At(tp.group_columns(), 1), (Range{512, 1024}));
  EXPECT_EQ(tp8r.experts(7, 63), (Range{378, 384}));
  EXPECT_EQ(tp8r.experts(40, 63), (Range{126, 128}));
  EXPECT_EQ(At(tp8r.vocab(), 0).size(), 2048);  // ceil(129280 / 64), in units of 128
  EXPECT_EQ(At(tp8r.vocab(), 63), (Range{129024, 129280}));
}

TEST(Layout, SeveralBatchesShareNoSumsAndNoTables) {
  const ModelConfig c = Config("released");
  EXPECT_THROW(Layout(c, {"dp", 2, 0, "fast"}), Error);
  EXPECT_THROW(Layout(c, {"tp", 4, 2, "exact", "rows-fp8"}), Error);
}

// The shared experts of whole sums: w1 and w3 by inner columns, w2 by outputs, in units of 32.
TEST(Layout, SlicesOfSharedExperts) {
  const ModelConfig c = Config("released");
  const Layout tp(c, {"tp", 64}), tp4(c, {"tp", 8, 4}), dp(c, {"dp", 2});
  EXPECT_EQ(tp4.SliceOf("layers.3.ffn.shared_experts.w1.weight", 5).rows.own, (Range{576, 1152}));
  EXPECT_EQ(tp4.SliceOf("mtp.1.ffn.shared_experts.w3.scale", 5).rows.own, (Range{576, 1152}));
  const Slice w2 = tp4.SliceOf("layers.3.ffn.shared_experts.w2.weight", 5);
  EXPECT_EQ(w2.rows.own, (Range{1280, 2560}));
  EXPECT_TRUE(w2.cols.whole());
  EXPECT_EQ(At(tp.shared_inner(), 35), (Range{2240, 2304}));  // 72 units, two each
  EXPECT_EQ(At(tp.shared_inner(), 36).size(), 0);
  EXPECT_EQ(At(tp.shared_out(), 53), (Range{5088, 5120}));  // 160 units, three each
  EXPECT_TRUE(dp.SliceOf("layers.3.ffn.shared_experts.w2.weight", 1).rows.whole());
}

// With partial sums: whole output groups where several ranks share one, slices of shared experts.
TEST(Layout, SlicesOfPartialSums) {
  const ModelConfig c = Config("released");
  const Layout tp(c, {"tp", 64, 0, "fast"}), tp4(c, {"tp", 4, 0, "fast"});
  EXPECT_EQ(tp.LowOf(9), (Range{1024, 2048}));
  const Slice wo_a = tp.SliceOf("layers.3.attn.wo_a.weight", 9);
  EXPECT_EQ(wo_a.rows.own, (Range{1024, 2048}));
  EXPECT_EQ(wo_a.cols.own, (Range{512, 1024}));
  EXPECT_EQ(wo_a.cols.of, 4096);
  EXPECT_EQ(tp4.SliceOf("mtp.1.attn.wo_b.scale", 1).cols.own, (Range{2048, 4096}));
  EXPECT_TRUE(tp4.SliceOf("mtp.1.attn.wo_b.scale", 1).rows.whole());
  EXPECT_EQ(At(tp4.shared_inner(), 1), (Range{512, 1152}));  // slices 4 to 8 of 18
  EXPECT_EQ(At(tp.shared_inner(), 0), (Range{0, 128}));
  EXPECT_EQ(At(tp.shared_inner(), 1).size(), 0);
  EXPECT_EQ(At(tp.shared_inner(), 3), (Range{128, 256}));
  EXPECT_EQ(At(tp.shared_inner(), 60), (Range{2176, 2304}));  // slice s on rank s * 64 / 18
  EXPECT_EQ(tp.EngramRows(1, 63).end, 384006168);
  EXPECT_EQ(tp.EngramRows(14, 0).size(), 6000261);
}

// 128 draft experts over 48 ranks: three each, until they are used up.
TEST(Layout, DraftExpertsRunOut) {
  const Layout l(Config("released"), {"ep", 48});
  EXPECT_EQ(l.experts(40, 42), (Range{126, 128}));
  EXPECT_EQ(l.experts(40, 47), (Range{128, 128}));
}

TEST(Layout, WhatDoesNotFitIsRefusedByName) {
  EXPECT_EQ(RefusalOf("released", "tp8r", 64), "");
  EXPECT_EQ(RefusalOf("released", "ep", 5),
            "--layout ep on 5 ranks: expected a number of ranks that divides the 384 experts of a "
            "layer");
  EXPECT_EQ(RefusalOf("released", "tp8r", 12),
            "--layout tp8r on 12 ranks: expected a multiple of the 8 ranks that share the heads");
  EXPECT_EQ(RefusalOf("released", "tp", 3),
            "--layout tp on 3 ranks: expected a number of ranks that divides the 64 heads");
  EXPECT_EQ(RefusalOf("tiny-odd", "tp", 3),
            "--layout tp on 3 ranks: expected whole output groups a rank, or whole ranks an output "
            "group, of which there are 4");
  EXPECT_EQ(RefusalOf("tiny-odd", "ep", 3), "");
  EXPECT_EQ(RefusalOf("tiny-window", "tp", 4),
            "--layout tp on 4 ranks: expected cuts at multiples of 32 of the 64 columns between "
            "wo_a and wo_b");
  EXPECT_EQ(RefusalOf("released", "dp", 2, 1), "");
  EXPECT_EQ(RefusalOf("released", "dp", 2, 2),
            "--layout dp on 2 ranks with --cp 2: expected a batch of its own for every rank, or "
            "--layout ep");
  EXPECT_EQ(RefusalOf("released", "tp", 8, 3),
            "--layout tp on 8 ranks with --cp 3: expected equal batches, --cp ranks each");
  EXPECT_EQ(RefusalOf("released", "tp8r", 24, 12),
            "--layout tp8r on 24 ranks with --cp 12: expected a multiple of the 8 ranks that share "
            "the heads");
  EXPECT_EQ(RefusalOf("released", "auto", 2),
            "--layout auto: not supported yet, expected dp, ep, tp or tp8r");
  EXPECT_EQ(RefusalOf("released", "pp", 2),
            "--layout: expected one of dp, ep, tp, tp8r, found \"pp\"");
  EXPECT_EQ(RefusalOf("released", "tp", 0), "ranks: expected 1 to 1024, found 0");
}

}  // namespace
}  // namespace deepinfer
