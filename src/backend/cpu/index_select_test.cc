// Index scores and selection: every table against the best of all scores and the scalar reference.
// Queries and keys are small whole numbers (times one scale), so every score is exact whatever the
// order of its sums, and selections must be equal, not close.
#include <algorithm>
#include <memory>

#include "backend/cpu/kernel_test.h"

namespace deepinfer {
namespace {

using Floats = std::vector<float>;
using Ids = std::vector<int32_t>;

struct Selected {
  std::vector<Ids> rows;
  std::vector<Ids> candidates;  // of each row
  Ids n_candidates;
  bool operator==(const Selected&) const = default;
};

// Sequences of keys in shuffled pages; the cache ends at a guard page.
struct Case {
  int32_t heads = 3, dim = 32, topk = 5, ratio = 1, block_size = 8, candidate_blocks = 4;
  int32_t rows_per_page = 16, n_seqs = 2, keys_per_seq = 0;
  RowFormat format = RowFormat::kFp4Block32;
  Floats keys;  // [sequences, keys_per_seq, dim]
  Floats q, weights;
  Ids positions, seqs, table;
  std::unique_ptr<GuardedBuffer> cache;

  int32_t rows() const { return static_cast<int32_t>(positions.size()); }

  // Packs `keys`; call when they are set.
  void MakeCache() {
    const int32_t pages = (keys_per_seq + rows_per_page - 1) / rows_per_page;
    table.resize(static_cast<size_t>(pages * n_seqs));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
    const int64_t n_rows = static_cast<int64_t>(table.size()) * rows_per_page;
    cache = std::make_unique<GuardedBuffer>(n_rows * RowBytes(format, dim));
    const int32_t n = n_seqs * keys_per_seq;
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t seq = i / keys_per_seq, j = i % keys_per_seq;
      slots.push_back(int64_t{table[static_cast<size_t>(seq * pages + j / rows_per_page)]} *
                          rows_per_page +
                      j % rows_per_page);
    }
    RunParts(ReferenceKernels().store_rows,
             StoreRowsArgs{&n, keys.data(), slots.data(), cache->bytes(), dim, format, 448}, 1);
  }

  // Rows [first, first + n). kRead reads the candidates given.
  Selected Run(const KernelTable& kernels, Candidates mode, const Selected& given, int32_t first,
               int32_t n, int parts, bool round = true) const {
    const size_t count = static_cast<size_t>(n);
    Ids selected(count * static_cast<size_t>(topk), -9), n_selected(count, -9);
    Ids candidates(count * static_cast<size_t>(candidate_blocks), -9), n_candidates(count, -9);
    if (mode == Candidates::kRead) {
      for (int32_t r = 0; r < n; ++r) {
        const Ids& list = given.candidates[static_cast<size_t>(first + r)];
        std::copy(list.begin(), list.end(), candidates.begin() + int64_t{r} * candidate_blocks);
        n_candidates[static_cast<size_t>(r)] = given.n_candidates[static_cast<size_t>(first + r)];
      }
    }
    const int64_t bytes = IndexSelectScratchBytes(heads, dim, topk, candidate_blocks);
    const GuardedBuffer scratch(bytes * parts);
    std::memset(scratch.bytes(), 0xff, static_cast<size_t>(bytes * parts));
    IndexSelectArgs a = {};
    a.n_rows = &n;
    a.q = q.data() + int64_t{first} * heads * dim;
    a.weights = weights.data() + int64_t{first} * heads;
    a.positions = positions.data() + first;
    a.row_seqs = seqs.data() + first;
    a.keys = {cache->bytes(), table.data(), static_cast<int64_t>(table.size()) / n_seqs,
              rows_per_page, format};
    a.heads = heads, a.dim = dim, a.topk = topk, a.ratio = ratio;
    a.weight_scale = 0.25f;
    a.round = a.round_scores = round;
    a.mode = mode;
    a.block_size = block_size, a.candidate_blocks = candidate_blocks;
    a.candidates = candidates.data(), a.n_candidates = n_candidates.data();
    a.selected = selected.data(), a.n_selected = n_selected.data();
    a.scratch = scratch.bytes(), a.scratch_stride = bytes;
    RunParts(kernels.index_select, a, parts);
    RunParts(kernels.index_merge, a, parts);
    Selected result;
    for (int32_t r = 0; r < n; ++r) {
      const auto begin = selected.begin() + int64_t{r} * topk;
      result.rows.emplace_back(begin, begin + n_selected[static_cast<size_t>(r)]);
      const int32_t kept = n_candidates[static_cast<size_t>(r)];
      const auto blocks = candidates.begin() + int64_t{r} * candidate_blocks;
      result.candidates.emplace_back(blocks,
                                     blocks + (mode == Candidates::kWrite && kept > 0 ? kept : 0));
      result.n_candidates.push_back(mode == Candidates::kWrite ? kept : 0);
    }
    return result;
  }
};

// ---- the oracle: all scores at once ----

// The score of key j for row r; exact, so it needs no more than the formula.
float Score(const Case& c, int32_t r, int32_t j, bool round) {
  const float* key =
      c.keys.data() + (int64_t{c.seqs[static_cast<size_t>(r)]} * c.keys_per_seq + j) * c.dim;
  double sum = 0;
  for (int32_t h = 0; h < c.heads; ++h) {
    const float* q = c.q.data() + (int64_t{r} * c.heads + h) * c.dim;
    double dot = 0;
    for (int32_t d = 0; d < c.dim; ++d) dot += double{q[d]} * double{key[d]};
    const float w = c.weights[static_cast<size_t>(r * c.heads + h)] * 0.25f;
    const float product =
        std::max(round ? RoundBf16(static_cast<float>(dot)) : static_cast<float>(dot), 0.0f) * w;
    sum += double{round ? RoundBf16(product) : product};
  }
  return round ? RoundBf16(static_cast<float>(sum)) : static_cast<float>(sum);
}

// Higher score first, then lower index.
bool Better(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// The best k of all, in ascending order of their index.
Ids Best(std::vector<std::pair<float, int32_t>> scored, size_t k) {
  if (k < scored.size()) {
    std::nth_element(scored.begin(), scored.begin() + static_cast<int64_t>(k), scored.end(),
                     Better);
    scored.resize(k);
  }
  Ids ids;
  for (const auto& s : scored) ids.push_back(s.second);
  std::sort(ids.begin(), ids.end());
  return ids;
}

Selected Expected(const Case& c, Candidates mode, const Selected& given, bool round = true) {
  Selected result;
  for (int32_t r = 0; r < c.rows(); ++r) {
    const size_t row = static_cast<size_t>(r);
    const int32_t visible = (c.positions[row] + 1) / c.ratio;
    const int32_t n_blocks = (visible + c.block_size - 1) / c.block_size;
    std::vector<std::pair<float, int32_t>> scored, blocks;
    for (int32_t b = 0; b < n_blocks; ++b) blocks.push_back({-INFINITY, b});
    for (int32_t j = 0; j < visible; ++j) {
      const int32_t block = j / c.block_size;
      if (mode == Candidates::kRead && given.n_candidates[row] >= 0 &&
          std::count(given.candidates[row].begin(), given.candidates[row].end(), block) == 0) {
        continue;
      }
      const float score = Score(c, r, j, round);
      scored.push_back({score, j});
      float& best = blocks[static_cast<size_t>(block)].first;
      best = std::max(best, block == n_blocks - 1 ? INFINITY : score);
    }
    result.rows.push_back(Best(scored, static_cast<size_t>(c.topk)));
    const bool all = n_blocks <= c.candidate_blocks;
    const bool write = mode == Candidates::kWrite;
    result.candidates.push_back(
        write && !all ? Best(blocks, static_cast<size_t>(c.candidate_blocks)) : Ids{});
    result.n_candidates.push_back(write ? (all ? -1 : c.candidate_blocks) : 0);
  }
  return result;
}

// ---- random cases ----

// Whole numbers that fp4 holds exactly, with a 6 in every block: the scale is 1.
Floats ExactFp4(Random* random, int64_t n) {
  constexpr float kValues[] = {0, 1, 2, 3, 4, 6, -1, -2, -3, -4, -6};
  Floats x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 32 == 0 ? 6 : kValues[random->Int(0, 10)];
  return x;
}

Case RandomCase(Random* random, int32_t n_rows, int32_t dim, int32_t n_keys) {
  Case c;
  c.dim = dim;
  c.n_seqs = random->Int(1, 2);  // one: all rows may share their keys
  c.keys_per_seq = n_keys;
  c.heads = random->Int(1, 12);
  c.ratio = random->Int(1, 2);
  c.topk = random->Int(1, 40);
  c.block_size = random->Int(1, 9);
  c.candidate_blocks = random->Int(1, 20);
  c.keys = ExactFp4(random, int64_t{c.n_seqs} * n_keys * dim);
  c.q = ExactFp4(random, int64_t{n_rows} * c.heads * dim);
  c.weights = random->Integers(int64_t{n_rows} * c.heads, 3);
  for (int32_t r = 0; r < n_rows; ++r) {
    c.positions.push_back(random->Int(-1, n_keys * c.ratio - 1));
    c.seqs.push_back(random->Int(0, c.n_seqs - 1));
  }
  c.MakeCache();
  return c;
}

void ExpectCase(const Case& c, const std::string& what) {
  const Selected written = Expected(c, Candidates::kWrite, {});
  for (Candidates mode : {Candidates::kNone, Candidates::kWrite, Candidates::kRead}) {
    const Selected expected = Expected(c, mode, written);
    ASSERT_EQ(expected.rows, c.Run(ReferenceKernels(), mode, written, 0, c.rows(), 1).rows) << what;
    for (const KernelTable* table : VectorTables()) {
      for (int parts : {1, 2, 3, 16, 33}) {  // also more threads than rows
        const Selected found = c.Run(*table, mode, written, 0, c.rows(), parts);
        ASSERT_EQ(expected.rows, found.rows) << table->isa << " " << what;
        ASSERT_EQ(expected.candidates, found.candidates) << table->isa << " " << what;
        ASSERT_EQ(expected.n_candidates, found.n_candidates) << table->isa << " " << what;
      }
      for (int32_t r = 0; r < c.rows(); r += 5) {  // a row alone
        ASSERT_EQ(expected.rows[static_cast<size_t>(r)],
                  c.Run(*table, mode, written, r, 1, r % 7 + 1).rows[0])
            << table->isa << " " << what << " row " << r;
      }
    }
  }
}

TEST(IndexSelect, EqualsTheBestOfAllScoresForAllRowCountsAndModes) {
  std::printf("seed %u\n", kSeed);
  Random random;
  for (int32_t rows : RowCounts()) {
    ExpectCase(RandomCase(&random, rows, 32, random.Int(1, 200)), "rows " + std::to_string(rows));
    if (HasFatalFailure()) return;
  }
}

TEST(IndexSelect, EqualsTheBestOfAllScoresForAllWidthsAndFormats) {
  Random random;
  for (int32_t dim : {32, 64, 96, 128, 160}) {
    for (RowFormat format : {RowFormat::kF32, RowFormat::kFp8Block32, RowFormat::kFp4Block32,
                             RowFormat::kFp4Block16}) {
      Case c = RandomCase(&random, 6, dim, 300);
      c.format = format;
      // One 6 in every 16 makes the fp4 scale 1; fp8 holds these numbers under any power of two.
      for (size_t i = 0; i < c.keys.size(); i += 16) c.keys[i] = 6;
      c.MakeCache();
      ExpectCase(c, "dim " + std::to_string(dim));
      if (HasFatalFailure()) return;
    }
  }
}

// Unrounded scores separate what bf16 makes equal.
TEST(IndexSelect, UnroundedScores) {
  Random random;
  for (int i = 0; i < 20; ++i) {
    const Case c = RandomCase(&random, 7, 64, 150);
    const Selected expected = Expected(c, Candidates::kNone, {}, false);
    for (const KernelTable* table : VectorTables()) {
      ASSERT_EQ(expected.rows, c.Run(*table, Candidates::kNone, {}, 0, 7, 2, false).rows)
          << table->isa;
    }
  }
}

// ---- planted cases ----

// One head, dim 32, weight 4: the score of a key is its first value times 6.
Case OneHead(const Floats& scores, int32_t topk) {
  Case c;
  c.heads = 1, c.n_seqs = 1, c.topk = topk, c.format = RowFormat::kF32;
  c.keys_per_seq = static_cast<int32_t>(scores.size());
  c.keys.resize(scores.size() * 32);
  for (size_t j = 0; j < scores.size(); ++j) c.keys[32 * j] = scores[j] / 6;
  c.q.assign(32, 0.0f);
  c.q[0] = 6;
  c.weights = {4};
  c.positions = {c.keys_per_seq - 1};
  c.seqs = {0};
  c.MakeCache();
  return c;
}

TEST(IndexSelect, EqualScoresGoToTheLowerIndex) {
  for (const KernelTable* table : VectorTables()) {
    EXPECT_EQ(OneHead(Floats(500, 12), 4).Run(*table, Candidates::kNone, {}, 0, 1, 1).rows[0],
              (Ids{0, 1, 2, 3}));
    // Late in the stream, with many better and worse ones around.
    Floats scores(3000, 6.0f);
    scores[2999] = scores[1500] = 12;
    EXPECT_EQ(OneHead(scores, 5).Run(*table, Candidates::kNone, {}, 0, 1, 1).rows[0],
              (Ids{0, 1, 2, 1500, 2999}));
  }
}

// Scores below zero do not exist before the weight; a negative weight makes -0 of 0, and that must
// tie with the +0 of other keys.
TEST(IndexSelect, ZerosOfBothSignsTie) {
  Floats scores(300, -6.0f);
  for (size_t j = 100; j < 300; ++j) scores[j] = 6;
  Case c = OneHead(scores, 3);
  c.weights = {-4};  // keys 0 ... 99 score -0 or +0, the others below
  for (const KernelTable* table : VectorTables()) {
    EXPECT_EQ(c.Run(*table, Candidates::kNone, {}, 0, 1, 1).rows[0], (Ids{0, 1, 2})) << table->isa;
  }
}

TEST(IndexSelect, NanScoresNeitherTrapNorWin) {
  Floats scores(400, 6.0f);
  for (size_t j = 0; j < 200; ++j) scores[j] = NAN;
  for (const KernelTable* table : VectorTables()) {
    EXPECT_EQ(OneHead(scores, 3).Run(*table, Candidates::kNone, {}, 0, 1, 1).rows[0],
              (Ids{200, 201, 202}))
        << table->isa;
  }
}

TEST(IndexSelect, NewestBlockIsAlwaysACandidate) {
  Floats scores(161, 12.0f);
  scores[160] = 0;  // alone in block 20, the worst of all
  Case c = OneHead(scores, 2);
  c.candidate_blocks = 3;
  for (const KernelTable* table : VectorTables()) {
    Selected s = c.Run(*table, Candidates::kWrite, {}, 0, 1, 1);
    EXPECT_EQ(s.candidates[0], (Ids{0, 1, 20})) << table->isa;
    EXPECT_EQ(s.n_candidates[0], 3);
    EXPECT_EQ(s.rows[0], (Ids{0, 1})) << "the own selection is from all rows";
    // Reading them: the best rows inside.
    c.topk = 18;
    s = c.Run(*table, Candidates::kRead, s, 0, 1, 1);
    EXPECT_EQ(s.rows[0], (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 160}));
    c.topk = 2;
  }
}

TEST(IndexSelect, AllBlocksAreSaidByMinusOne) {
  const Case c = OneHead(Floats(32, 6.0f), 40);  // 4 blocks of 8, 4 candidate blocks
  for (const KernelTable* table : VectorTables()) {
    const Selected s = c.Run(*table, Candidates::kWrite, {}, 0, 1, 1);
    EXPECT_EQ(s.n_candidates[0], -1) << table->isa;
    EXPECT_EQ(s.rows[0].size(), 32u);
    EXPECT_EQ(c.Run(*table, Candidates::kRead, s, 0, 1, 1).rows[0].size(), 32u);
  }
}

TEST(IndexSelect, NothingVisible) {
  Case c = OneHead({6, 6}, 2);
  c.ratio = 2, c.positions = {0};  // the group of position 0 is still open
  for (const KernelTable* table : VectorTables()) {
    const Selected s = c.Run(*table, Candidates::kWrite, {}, 0, 1, 1);
    EXPECT_TRUE(s.rows[0].empty()) << table->isa;
    EXPECT_EQ(s.n_candidates[0], -1);
  }
}

// 64 rows over 1,048,576 keys with planted best ones, scratch of a few pages (it ends at a guard
// page), against the best of all scores. Keys repeat a pattern of 4096, so most scores tie many
// times.
TEST(IndexSelect, MillionKeys) {
  constexpr int32_t kKeys = 1048576, kPattern = 4096, kRows = 64;
  Random random;
  Case c;
  c.heads = 1, c.topk = 100, c.n_seqs = 1, c.keys_per_seq = kKeys, c.rows_per_page = 64;
  c.candidate_blocks = 50;
  const Floats pattern = ExactFp4(&random, int64_t{kPattern} * c.dim);
  for (int32_t i = 0; i < kKeys / kPattern; ++i) {
    c.keys.insert(c.keys.end(), pattern.begin(), pattern.end());
  }
  c.q = ExactFp4(&random, int64_t{kRows} * c.heads * c.dim);
  c.weights.assign(static_cast<size_t>(kRows * c.heads), 2.0f);
  for (int32_t r = 0; r < kRows; ++r) {
    c.positions.push_back(kKeys - 1 - 1000 * r);
    c.seqs.push_back(0);
    for (int i = 0; i < 40; ++i) {  // 40 keys that answer this row as well as any can
      const int64_t key = random.Int(0, kKeys - 1) * int64_t{c.dim};
      for (int32_t d = 0; d < c.dim; ++d) {
        c.keys[static_cast<size_t>(key + d)] =
            d == 0 ? 6 : std::copysign(6.0f, c.q[static_cast<size_t>(r * c.heads * c.dim + d)]);
      }
    }
  }
  c.MakeCache();
  const Selected expected = Expected(c, Candidates::kWrite, {});
  KernelOf<IndexSelectArgs> last = nullptr;
  for (const KernelTable* table : VectorTables()) {
    if (table->index_select == last) continue;  // a level that has none of its own
    last = table->index_select;
    const Selected found = c.Run(*table, Candidates::kWrite, {}, 0, kRows, 3);
    ASSERT_TRUE(expected == found) << table->isa;
    const Selected alone = c.Run(*table, Candidates::kWrite, {}, 7, 1, 20);
    ASSERT_EQ(expected.rows[7], alone.rows[0]) << table->isa;
    ASSERT_EQ(expected.candidates[7], alone.candidates[0]) << table->isa;
  }
}

}  // namespace
}  // namespace deepinfer
