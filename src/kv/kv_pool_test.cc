#include "kv/kv_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace deepinfer {
namespace {

KvShape SmallShape() {
  KvShape shape{};
  shape.n_layers = 3;
  shape.window = 8;
  shape.max_step_rows = 5;
  shape.window_row_bytes = 33;
  shape.compressed_row_bytes = 18;
  shape.index_row_bytes = 17;
  shape.raw_cols = 32;
  shape.owners = {{1, 2}, {2, 1}};
  return shape;
}

TEST(KvPool, SlotsAndBlocksComeBackWhenASequenceCloses) {
  KvPool pool(SmallShape(), 2, 5, 1000);
  const SeqSlot a = pool.Open(), b = pool.Open();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.Open(), -1);
  EXPECT_TRUE(pool.Reserve(a, 3 * kBlockTokens));
  EXPECT_TRUE(pool.Reserve(b, 2 * kBlockTokens));
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_FALSE(pool.Reserve(b, 2 * kBlockTokens + 1)) << "no block is left";
  EXPECT_TRUE(pool.Reserve(b, 2 * kBlockTokens)) << "a refusal changes nothing";
  pool.Close(a);
  EXPECT_EQ(pool.free_blocks(), 3);
  EXPECT_TRUE(pool.Reserve(b, 2 * kBlockTokens + 1));
  EXPECT_EQ(pool.Open(), a);
  EXPECT_EQ(pool.length(a), 0);
}

// Batches that ranks compute side by side stay even, whichever sequences end.
TEST(KvPool, ANewSequenceGoesToTheBatchWithFewest) {
  KvShape shape = SmallShape();
  shape.n_batches = 3;
  KvPool pool(shape, 8, 8, 100);
  std::mt19937 random(1);
  std::vector<SeqSlot> open;
  for (int i = 0; i < 1000; ++i) {
    if (!open.empty() && random() % 3 == 0) {
      const auto slot = open.begin() + static_cast<int64_t>(random() % open.size());
      pool.Close(*slot);
      open.erase(slot);
    } else if (open.size() < 8) {
      std::map<int, int> sizes = {{0, 0}, {1, 0}, {2, 0}};
      for (const SeqSlot slot : open) ++sizes[pool.batch(slot)];
      const SeqSlot slot = pool.Open();
      for (const auto& [batch, size] : sizes) {
        const int room = batch < 2 ? 3 : 2;  // of 8 slots
        EXPECT_TRUE(sizes[pool.batch(slot)] <= size || size == room) << "batch " << batch;
      }
      open.push_back(slot);
    }
  }
  EXPECT_EQ(pool.batch(4), 1);
}

// Where a cached row of a position lies, as FillInputs said when the position was written.
struct Written {
  std::map<std::pair<SeqSlot, int64_t>, int64_t> window, raw;
  std::map<std::tuple<int, SeqSlot, int64_t>, int64_t> groups;  // ratio, slot, group
};

void Record(const StepInputs& in, Written* w) {
  for (int32_t r = 0; r < in.n_rows; ++r) {
    w->window[{in.row_slots[r], in.positions[r]}] = in.window_slots[r];
    w->raw[{in.row_slots[r], in.positions[r]}] = in.raw_slots[r];
  }
  for (int ratio = 1; ratio <= kMaxRatio; ++ratio) {
    for (int32_t g = 0; g < in.n_groups[ratio]; ++g) {
      const int32_t r = in.group_rows[ratio][g];
      EXPECT_EQ((in.positions[r] + 1) % ratio, 0)
          << "row " << r << " completes no group of " << ratio;
      w->groups[{ratio, in.row_slots[r], in.positions[r] / ratio}] = in.group_slots[ratio][g];
    }
  }
}

// No two visible rows of any sequences share a place, and the block table leads to the places that
// were written.
void ExpectDisjointAndReachable(const KvPool& pool, const Written& w, std::span<const SeqRows> seqs,
                                const StepInputs& in) {
  std::set<int64_t> window_places;
  std::map<int, std::set<int64_t>> group_places;
  for (size_t s = 0; s < seqs.size(); ++s) {
    const SeqSlot slot = seqs[s].slot;
    const int64_t first = seqs[s].first, end = static_cast<int64_t>(seqs[s].tokens.size());
    // The oldest row this step reads belongs to its first row's window.
    for (int64_t p = std::max<int64_t>(0, first - pool.shape().window + 1); p < end; ++p) {
      EXPECT_TRUE(window_places.insert(w.window.at({slot, p})).second) << "position " << p;
    }
    for (int ratio = 1; ratio <= kMaxRatio; ++ratio) {
      const int64_t per_page = kBlockTokens / ratio;
      for (int64_t j = 0; j < end / ratio; ++j) {
        const int64_t place = w.groups.at({ratio, slot, j});
        EXPECT_TRUE(group_places[ratio].insert(place).second)
            << "ratio " << ratio << " group " << j;
        const int32_t page =
            in.block_table[static_cast<int64_t>(s) * in.table_stride + j / per_page];
        EXPECT_EQ(page * per_page + j % per_page, place);
      }
    }
    if (first > 0) {  // the open group needs the row in front of the step
      for (int64_t p = first; p < end; ++p)
        EXPECT_NE(w.raw.at({slot, p}), w.raw.at({slot, first - 1}));
    }
  }
}

TEST(KvPool, RandomSchedulesKeepVisibleRowsApart) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
  };
  KvPool pool(SmallShape(), 3, 12, 400);
  StepBlock block(5, 3, pool.max_blocks_per_seq(), 1);
  std::map<SeqSlot, std::vector<TokenId>> live;
  std::map<SeqSlot, int64_t> longest;
  Written written;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() < 3 && pick(4) == 0) {
      const SeqSlot slot = pool.Open();
      live[slot] = {};
    }
    std::vector<SeqRows> seqs;
    int64_t rows = 5;
    for (auto& [slot, tokens] : live) {
      const int64_t n = std::min(rows, pick(4));
      if (static_cast<int64_t>(tokens.size()) + n > 400 ||
          !pool.Reserve(slot, static_cast<int64_t>(tokens.size()) + n)) {
        continue;
      }
      const int64_t first = static_cast<int64_t>(tokens.size());
      for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(step));
      rows -= n;
      seqs.push_back({slot, tokens, first, pick(3)});
    }
    pool.FillInputs(seqs, block.inputs());
    Record(*block.inputs(), &written);
    ExpectDisjointAndReachable(pool, written, seqs, *block.inputs());
    for (const SeqRows& s : seqs) pool.SetLength(s.slot, static_cast<int64_t>(s.tokens.size()));
    if (!live.empty() && pick(3) == 0) {  // take some tokens back, or end a sequence
      auto it = std::next(live.begin(), pick(static_cast<int64_t>(live.size())));
      if (pick(10) == 0) {
        pool.Close(it->first);
        longest.erase(it->first);
        live.erase(it);
      } else {
        int64_t& most = longest[it->first];
        most = std::max(most, static_cast<int64_t>(it->second.size()));
        const int64_t keep =
            std::max({int64_t{0}, most - 5, static_cast<int64_t>(it->second.size()) - pick(6)});
        it->second.resize(static_cast<size_t>(keep));
        pool.SetLength(it->first, keep);
      }
    }
    if (HasFailure()) FAIL() << "step " << step;
  }
}

// A block behind the sequence: every row sees up to its end, nothing that is visible is
// overwritten, and the sequence can go on or back as before.
TEST(KvPool, DraftRowsLieBehindTheSequence) {
  KvShape shape = SmallShape();
  shape.draft_rows = 4;
  KvPool pool(shape, 2, 8, 256);
  StepBlock block(16, 2, pool.max_blocks_per_seq(), 0);
  StepInputs* in = block.inputs();
  const SeqSlot slots[2] = {pool.Open(), pool.Open()};
  const std::vector<TokenId> tokens(40, 3);
  for (int64_t length = 1; length < 40; ++length) {
    for (SeqSlot slot : slots) {
      ASSERT_TRUE(pool.Reserve(slot, length));
      pool.SetLength(slot, length);
    }
    const DraftRows rows[2] = {{slots[0], 70}, {slots[1], 71}};
    pool.FillDraft(rows, 4, 9, in);
    ASSERT_EQ(in->n_rows, 8);
    EXPECT_EQ(in->n_seqs, 2);
    EXPECT_EQ(in->n_samples, 0);
    EXPECT_EQ(in->n_groups[1] + in->n_groups[2], 0) << "no compressed row";
    EXPECT_EQ(in->all_rows_begin[1], 8);
    std::set<int64_t> written;
    for (int32_t r = 0; r < 8; ++r) {
      EXPECT_EQ(in->ids[r], r % 4 == 0 ? 70 + r / 4 : 9);
      EXPECT_EQ(in->positions[r], length + r % 4);
      EXPECT_EQ(in->window_ends[r], length + 3);
      EXPECT_EQ(in->row_seqs[r], r / 4);
      EXPECT_EQ(in->row_slots[r], slots[r / 4]);
      EXPECT_TRUE(written.insert(in->window_slots[r]).second);
    }
    // Rows that are visible behind the longest rollback: window rows before length - max_step_rows.
    for (int64_t p = std::max<int64_t>(0, length - 5 - 8); p < length; ++p) {
      for (SeqSlot slot : slots)
        EXPECT_FALSE(written.contains(slot * shape.ring() + p % shape.ring())) << p;
    }
  }
}

TEST(KvPool, LogitsAreAskedForTheLastRowsOfASequence) {
  KvPool pool(SmallShape(), 3, 12, 400);
  StepBlock block(5, 3, pool.max_blocks_per_seq(), 1);
  const std::vector<TokenId> tokens = {4, 5, 6, 7};
  std::vector<SeqRows> seqs;
  for (int64_t n_logits : {0, 1, 9}) {
    const SeqSlot slot = pool.Open();
    ASSERT_TRUE(pool.Reserve(slot, 4));
    const size_t rows = n_logits == 9   ? 2
                        : n_logits == 1 ? 3
                                        : 0;  // one sequence brings no row at all
    seqs.push_back({slot, std::span(tokens).first(rows), 0, n_logits});
  }
  pool.FillInputs(seqs, block.inputs());
  const StepInputs& in = *block.inputs();
  EXPECT_EQ(in.n_rows, 5);
  EXPECT_EQ(in.n_seqs, 3);
  ASSERT_EQ(in.n_samples, 3);
  EXPECT_EQ(in.sample_rows[0], 2);
  EXPECT_EQ(in.sample_rows[1], 3);
  EXPECT_EQ(in.sample_rows[2], 4);
  EXPECT_EQ(in.row_seqs[3], 2);
}

TEST(KvPoolDeathTest, RollbackBeyondTheRingsIsABug) {
  KvPool pool(SmallShape(), 1, 12, 400);
  const SeqSlot slot = pool.Open();
  ASSERT_TRUE(pool.Reserve(slot, 100));
  pool.SetLength(slot, 100);
  pool.SetLength(slot, 95);
  EXPECT_DEATH(pool.SetLength(slot, 94), "rollback");
}

}  // namespace
}  // namespace deepinfer
