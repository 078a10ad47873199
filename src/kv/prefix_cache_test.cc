// Caches that hold what their place stands for, so that every byte that is restored can be checked.
#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <unordered_map>
#include <utility>

namespace deepinfer {
namespace {

constexpr int64_t kRows = 70;  // most rows of a step

KvShape SmallShape() {
  KvShape shape{};
  shape.n_layers = 3;
  shape.window = 8;
  shape.max_step_rows = kRows;
  shape.draft_rows = 3;
  shape.window_row_bytes = 8;
  shape.compressed_row_bytes = 8;
  shape.index_row_bytes = 8;
  shape.raw_cols = 2;
  shape.owners = {{1, 2}, {2, 1}};
  return shape;
}

// Eight bytes that only this row has.
uint64_t Mark(TokenId id, int64_t position, int64_t layer) {
  return static_cast<uint64_t>(id) << 40 | static_cast<uint64_t>(position) << 8 |
         static_cast<uint64_t>(layer);
}

class Caches {
 public:
  explicit Caches(int64_t n_blocks, int max_seqs = 3)
      : pool(SmallShape(), max_seqs, n_blocks, 1024),
        block_(kRows, max_seqs, pool.max_blocks_per_seq(), 0) {}

  // Computes tokens of a slot up to `end`, as steps of at most kRows rows.
  void Compute(SeqSlot slot, const std::vector<TokenId>& tokens, int64_t end) {
    ASSERT_TRUE(pool.Reserve(slot, end));
    while (pool.length(slot) < end) {
      const int64_t next = std::min(end, pool.length(slot) + kRows);
      const SeqRows rows{slot, std::span(tokens).first(static_cast<size_t>(next)),
                         pool.length(slot), 0};
      pool.FillInputs({&rows, 1}, block_.inputs());
      Write(*block_.inputs());
      pool.SetLength(slot, next);
    }
  }

  // Everything that the next token of a slot sees is there.
  void ExpectHolds(SeqSlot slot, const std::vector<TokenId>& tokens) {
    const int64_t n = pool.length(slot), ring = pool.shape().ring();
    const auto id = [&](int64_t p) { return tokens[static_cast<size_t>(p)]; };
    for (int64_t p = std::max<int64_t>(0, n - pool.shape().window); p < n; ++p) {
      for (int64_t layer = 0; layer < 3; ++layer) {
        EXPECT_EQ(Read(pool.window_rows(layer), slot * ring + p % ring), Mark(id(p), p, layer));
      }
    }
    for (int64_t p = std::max<int64_t>(0, n - kMaxRatio); p < n; ++p) {
      const int64_t row = slot * pool.shape().raw_ring() + p % pool.shape().raw_ring();
      EXPECT_EQ(Read(pool.raw_kv(1), row), Mark(id(p), p, 10));
      EXPECT_EQ(Read(pool.raw_score(1), row), Mark(id(p), p, 11));
    }
    for (const KvShape::Owner& o : pool.shape().owners) {
      const int64_t per_page = kBlockTokens / o.ratio;
      for (int64_t j = 0; j < n / o.ratio; ++j) {
        const int64_t block = pool.blocks(slot)[static_cast<size_t>(j / per_page)];
        const int64_t row = block * per_page + j % per_page, p = (j + 1) * o.ratio - 1;
        EXPECT_EQ(Read(pool.compressed_rows(o.layer), row), Mark(id(p), p, 20 + o.layer));
        EXPECT_EQ(Read(pool.index_rows(o.layer), row), Mark(id(p), p, 30 + o.layer));
      }
    }
  }

  KvPool pool;

 private:
  static uint64_t Read(const void* rows, int64_t row) {
    uint64_t mark;
    std::memcpy(&mark, static_cast<const uint8_t*>(rows) + row * 8, 8);
    return mark;
  }
  static void Put(void* rows, int64_t row, uint64_t mark) {
    std::memcpy(static_cast<uint8_t*>(rows) + row * 8, &mark, 8);
  }
  void Write(const StepInputs& in) {
    for (int32_t r = 0; r < in.n_rows; ++r) {
      for (int64_t layer = 0; layer < 3; ++layer)
        Put(pool.window_rows(layer), in.window_slots[r], Mark(in.ids[r], in.positions[r], layer));
      Put(pool.raw_kv(1), in.raw_slots[r], Mark(in.ids[r], in.positions[r], 10));
      Put(pool.raw_score(1), in.raw_slots[r], Mark(in.ids[r], in.positions[r], 11));
    }
    for (const KvShape::Owner& o : pool.shape().owners) {
      for (int32_t g = 0; g < in.n_groups[o.ratio]; ++g) {
        const int32_t r = in.group_rows[o.ratio][g];
        const int64_t row = in.group_slots[o.ratio][g];
        Put(pool.compressed_rows(o.layer), row, Mark(in.ids[r], in.positions[r], 20 + o.layer));
        Put(pool.index_rows(o.layer), row, Mark(in.ids[r], in.positions[r], 30 + o.layer));
      }
    }
  }

  StepBlock block_;
};

std::vector<TokenId> Tokens(int64_t n, TokenId first = 1) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Opens a slot with what is known of `tokens`.
SeqSlot Begin(Caches* caches, PrefixCache* cache, const std::vector<TokenId>& tokens) {
  const SeqSlot slot = caches->pool.Open();
  const PrefixCache::Hit hit = cache->Match(tokens);
  cache->Adopt(slot, hit);
  cache->Load(slot, hit);
  EXPECT_EQ(caches->pool.length(slot), hit.tokens);
  return slot;
}

TEST(PrefixCache, RestoresEveryByteThatIsStillSeen) {
  Caches c(16);
  PrefixCache cache(&c.pool, 4 * c.pool.ring_bytes());
  const std::vector<TokenId> tokens = Tokens(300);
  const SeqSlot a = Begin(&c, &cache, tokens);
  c.Compute(a, tokens, 200);
  cache.Publish(a, tokens, 192);
  // Another one, with other bytes in the rings.
  const SeqSlot b = Begin(&c, &cache, Tokens(100, 500));
  c.Compute(b, Tokens(100, 500), 77);
  c.pool.Close(a);
  c.pool.Close(b);

  for (int round = 0; round < 3; ++round) {
    const SeqSlot slot = Begin(&c, &cache, tokens);
    EXPECT_EQ(c.pool.length(slot), 192);
    c.ExpectHolds(slot, tokens);
    c.Compute(slot, tokens, 250 + round);
    c.ExpectHolds(slot, tokens);
    c.pool.Close(slot);
  }
}

TEST(PrefixCache, MatchesWholePagesButForTheLastToken) {
  Caches c(16);
  PrefixCache cache(&c.pool, 8 * c.pool.ring_bytes());
  const std::vector<TokenId> tokens = Tokens(256);
  const SeqSlot a = c.pool.Open();
  c.Compute(a, tokens, 70);
  cache.Publish(a, tokens, 64);
  c.Compute(a, tokens, 256);
  cache.Publish(a, tokens, 256);
  const auto match = [&](int64_t n) { return cache.Match(std::span(tokens).first(n)).tokens; };
  EXPECT_EQ(match(1), 0);
  EXPECT_EQ(match(64), 0) << "the last token has to be computed";
  EXPECT_EQ(match(65), 64);
  EXPECT_EQ(match(200), 64) << "no state was left at 128 and 192";
  EXPECT_EQ(cache.Match(std::span(tokens).first(200)).known, 192);
  EXPECT_EQ(match(256), 64);
  std::vector<TokenId> longer = tokens;
  longer.push_back(7);
  EXPECT_EQ(cache.Match(longer).tokens, 256);
  longer[100] = 0;
  EXPECT_EQ(cache.Match(longer).tokens, 64);
  EXPECT_EQ(cache.Match(longer).known, 64);
}

// Two pages of the same hash: FNV-1a as the cache computes it. Its third id evens out the low bits
// of the hash, so that two of many beginnings whose high bits are equal will do.
std::pair<std::vector<TokenId>, std::vector<TokenId>> PagesOfOneHash() {
  constexpr uint64_t kBasis = 0xCBF29CE484222325, kPrime = 0x100000001B3;
  constexpr uint64_t kIds = 0x7FFFFFFF;
  std::mt19937 random(8);
  std::unordered_map<uint64_t, std::vector<TokenId>> seen;
  while (true) {
    const uint64_t a = random() & kIds, b = random() & kIds;
    const uint64_t hash = (((kBasis ^ a) * kPrime) ^ b) * kPrime;
    std::vector<TokenId> page = {static_cast<TokenId>(a), static_cast<TokenId>(b),
                                 static_cast<TokenId>(hash & kIds)};
    page.resize(kBlockTokens + 1, 5);
    const auto [found, is_new] = seen.try_emplace(hash & ~kIds, page);
    if (!is_new && found->second != page) return {found->second, page};
  }
}

TEST(PrefixCache, PagesOfOneHashAreToldApart) {
  Caches c(16);
  PrefixCache cache(&c.pool, 8 * c.pool.ring_bytes());
  const auto [a, b] = PagesOfOneHash();
  for (const std::vector<TokenId>& tokens : {a, b}) {
    EXPECT_EQ(cache.Match(tokens).tokens, 0);
    const SeqSlot slot = c.pool.Open();
    c.Compute(slot, tokens, 64);
    cache.Publish(slot, tokens, 64);
    c.pool.Close(slot);
    EXPECT_EQ(cache.Match(tokens).tokens, 64);
  }
  EXPECT_EQ(cache.Match(a).tokens, 0) << "the newer one is found";
  while (cache.Evict()) continue;
  EXPECT_EQ(cache.Match(b).tokens, 0);
  EXPECT_EQ(c.pool.free_blocks(), 16);
}

TEST(PrefixCache, StatesThatTheRingsHaveLostAreNotKept) {
  Caches c(16);
  PrefixCache cache(&c.pool, 8 * c.pool.ring_bytes());
  const std::vector<TokenId> tokens = Tokens(300);
  const SeqSlot a = c.pool.Open();
  c.Compute(a, tokens, 64 + kRows);
  cache.Publish(a, tokens, 64);
  EXPECT_EQ(cache.n_snapshots(), 1);
  c.Compute(a, tokens, 128 + kRows + 1);
  cache.Publish(a, tokens, 128);
  EXPECT_EQ(cache.n_snapshots(), 1);
}

// The rings hold what was restored and what came after, nothing in front of it.
TEST(PrefixCache, StatesInFrontOfWhatWasRestoredAreNotKept) {
  Caches c(16);
  PrefixCache cache(&c.pool, 8 * c.pool.ring_bytes());
  const std::vector<TokenId> tokens = Tokens(300);
  const SeqSlot a = c.pool.Open();
  c.Compute(a, tokens, 192);
  cache.Publish(a, tokens, 192);
  const SeqSlot b = Begin(&c, &cache, tokens);
  ASSERT_EQ(c.pool.length(b), 192);
  c.Compute(b, tokens, 194);
  EXPECT_TRUE(c.pool.CanRollBack(b, 192));
  EXPECT_FALSE(c.pool.CanRollBack(b, 191));
  cache.Publish(b, tokens, 128);
  EXPECT_EQ(cache.n_snapshots(), 1);
}

TEST(PrefixCache, TheLongestUnusedGoesFirst) {
  Caches c(32);
  PrefixCache cache(&c.pool, 2 * c.pool.ring_bytes());
  const auto publish = [&](TokenId first) {
    const std::vector<TokenId> tokens = Tokens(130, first);
    const SeqSlot slot = Begin(&c, &cache, tokens);
    c.Compute(slot, tokens, 130);
    cache.Publish(slot, tokens, 128);
    c.pool.Close(slot);
  };
  const auto known = [&](TokenId first) { return cache.Match(Tokens(130, first)).tokens; };
  publish(1000);
  publish(2000);
  publish(1000);  // used again
  publish(3000);
  EXPECT_EQ(known(1000), 128);
  EXPECT_EQ(known(2000), 0);
  EXPECT_EQ(known(3000), 128);
  EXPECT_EQ(cache.n_pages(), 4);
  EXPECT_EQ(c.pool.free_blocks(), 28) << "pages that lead nowhere are free";
  EXPECT_EQ(c.pool.n_idle_cached(), 4);
  EXPECT_TRUE(cache.Evict());
  EXPECT_EQ(known(1000), 0);
  EXPECT_TRUE(cache.Evict());
  EXPECT_FALSE(cache.Evict());
  EXPECT_EQ(c.pool.free_blocks(), 32);
}

TEST(PrefixCache, WhatASequenceUsesStays) {
  Caches c(8);
  PrefixCache cache(&c.pool, 4 * c.pool.ring_bytes());
  const std::vector<TokenId> tokens = Tokens(200);
  const SeqSlot a = c.pool.Open();
  c.Compute(a, tokens, 130);
  cache.Publish(a, tokens, 128);
  EXPECT_FALSE(cache.Evict()) << "nothing would become free";
  const SeqSlot b = Begin(&c, &cache, tokens);
  c.pool.Close(a);
  EXPECT_FALSE(cache.Evict());
  c.ExpectHolds(b, tokens);
  c.pool.Close(b);
  EXPECT_TRUE(cache.Evict());
  EXPECT_EQ(c.pool.free_blocks(), 8);
}

TEST(PrefixCache, WithoutMemoryNothingIsRemembered) {
  Caches c(8);
  PrefixCache cache(&c.pool, c.pool.ring_bytes() - 1);
  const std::vector<TokenId> tokens = Tokens(200);
  const SeqSlot a = c.pool.Open();
  c.Compute(a, tokens, 130);
  cache.Publish(a, tokens, 128);
  EXPECT_EQ(cache.n_pages(), 0);
  c.pool.Close(a);
  EXPECT_EQ(c.pool.free_blocks(), 8);
}

// Sequences over few tokens, so that they often have a common beginning; few blocks and snapshots.
TEST(PrefixCache, RandomTrafficNeverRestoresWrongBytes) {
  int64_t restored = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const int64_t n_blocks = 12 + random() % 20;
    Caches c(n_blocks, 2);
    {
      PrefixCache cache(&c.pool, static_cast<int64_t>(1 + random() % 6) * c.pool.ring_bytes());
      for (int i = 0; i < 60; ++i) {
        std::vector<TokenId> tokens;
        for (int64_t page = 1 + random() % 5; page > 0; --page)
          tokens.resize(tokens.size() + 64, static_cast<TokenId>(random() % 2));
        tokens.resize(tokens.size() + random() % 64, 5);
        const SeqSlot slot = c.pool.Open();
        const PrefixCache::Hit hit = cache.Match(tokens);
        cache.Adopt(slot, hit);
        while (!c.pool.Reserve(slot, std::ssize(tokens))) ASSERT_TRUE(cache.Evict());
        cache.Load(slot, hit);
        restored += hit.tokens;
        c.ExpectHolds(slot, tokens);
        const int64_t end = c.pool.length(slot) + random() % (tokens.size() - c.pool.length(slot));
        c.Compute(slot, tokens, end);
        cache.Publish(slot, tokens, end / kBlockTokens * kBlockTokens);
        c.Compute(slot, tokens, std::ssize(tokens));
        const int64_t n_pages = std::ssize(tokens) / kBlockTokens;
        cache.Publish(slot, tokens, static_cast<int64_t>(random() % (n_pages + 1)) * kBlockTokens);
        cache.Publish(slot, tokens, n_pages * kBlockTokens);
        c.ExpectHolds(slot, tokens);
        c.pool.Close(slot);
        EXPECT_EQ(c.pool.free_blocks() + c.pool.n_idle_cached(), n_blocks);
        EXPECT_EQ(c.pool.n_idle_cached(), cache.n_pages());
      }
    }
    EXPECT_EQ(c.pool.free_blocks(), n_blocks);
  }
  EXPECT_GT(restored, 50000);
}

}  // namespace
}  // namespace deepinfer
