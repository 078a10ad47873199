// Largest logits, part by part, against the sampler's rule: lowest id among equals, none when a
// logit is NaN or +inf.
#include "ops/logits.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/kernel_test.h"

namespace deepinfer {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Of all tables, the scalar one included, by any number of threads.
void ExpectLargest(const std::vector<float>& rows, int32_t n_rows, const std::string& what) {
  const auto vocab = static_cast<int32_t>(rows.size()) / n_rows;
  const GuardedFloats logits(rows);
  std::vector<const KernelTable*> tables = VectorTables();
  tables.push_back(&ReferenceKernels());
  for (const KernelTable* table : tables) {
    for (int threads : {1, 2, 3, 8, 40}) {
      std::vector<TopLogit> parts(static_cast<size_t>(n_rows * threads), {7, 7});
      RunParts(table->top_logits, TopLogitsArgs{&n_rows, logits.data(), parts.data(), vocab},
               threads);
      for (int32_t r = 0; r < n_rows; ++r) {
        const auto begin = rows.begin() + int64_t{r} * vocab, end = begin + vocab;
        const auto largest = std::max_element(begin, end);
        const bool sound = std::all_of(begin, end, [](float l) { return l < kInf; });
        const auto id = static_cast<int32_t>(largest - begin);
        ASSERT_EQ(LargestOfParts(parts.data() + r * threads, threads),
                  sound && *largest > -kInf ? id : -1)
            << table->isa << " " << what << " row " << r << " threads " << threads;
      }
    }
  }
}

TEST(TopLogits, FindsTheFirstOfTheLargestInAnyVocabulary) {
  Random random;
  for (int32_t vocab : {1, 7, 16, 31, 33, 64, 100, 1000, 4097}) {
    for (int32_t n_rows : {1, 3}) {
      // Few different values: most rows have ties.
      ExpectLargest(random.Integers(int64_t{n_rows} * vocab, 9), n_rows, "ties");
      ExpectLargest(random.Normals(int64_t{n_rows} * vocab), n_rows, "normal");
    }
  }
}

TEST(TopLogits, PlantedAtEveryPlace) {
  constexpr size_t kVocab = 131;
  for (size_t i = 0; i < kVocab; ++i) {
    const std::string what = "place " + std::to_string(i);
    std::vector<float> logits(kVocab, -1);
    logits[i] = 2;
    ExpectLargest(logits, 1, what);
    logits[(i * 7 + 3) % kVocab] = 2;
    ExpectLargest(logits, 1, what + " and a tie");
    std::fill(logits.begin(), logits.end(), -kInf);
    ExpectLargest(logits, 1, "nothing");
    logits[i] = -3e38f;
    ExpectLargest(logits, 1, what + " alone");
    for (float bad : {kInf, std::numeric_limits<float>::quiet_NaN()}) {
      std::fill(logits.begin(), logits.end(), 1.0f);
      logits[i] = bad;
      ExpectLargest(logits, 1, what + " unsound");
    }
  }
}

TEST(TopLogits, ZerosOfBothSignsTie) {
  ExpectLargest({-1, -0.0f, 0.0f, -0.0f}, 1, "zeros");
  std::vector<float> logits(70, -0.0f);
  logits[69] = 0.0f;
  ExpectLargest(logits, 1, "zeros");
}

}  // namespace
}  // namespace deepinfer
