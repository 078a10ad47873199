// A step allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/executor.h"

namespace {

std::atomic<int64_t> n_allocations{0};

void* Allocate(std::size_t bytes, std::size_t alignment) {
  ++n_allocations;
  void* p = alignment > 0
                ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                : std::malloc(bytes > 0 ? bytes : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace deepinfer {
namespace {

TEST(NoAllocTest, TheCounterCounts) {
  const int64_t before = n_allocations;
  delete new int(3);
  EXPECT_GT(n_allocations, before);
}

TEST(NoAllocTest, HundredStepsOfTwoSequences) {
  for (const char* numerics : {"release", "fp32"}) {
    Executor executor(
        {.engine = {.model = std::string(DI_SOURCE_DIR) + "/build/testdata/checkpoints/tiny",
                    .max_model_len = 128,
                    .max_num_batched_tokens = 16,
                    .max_num_seqs = 2,
                    .threads = 2,
                    .numerics = numerics},
         .all_logits = false,
         .progress = {}});
    std::vector<TokenId> text;
    for (int i = 0; i < 128; ++i) text.push_back((i * 37 + 5) % 600);
    const SeqSlot slots[2] = {executor.kv().Open(), executor.kv().Open()};
    for (SeqSlot slot : slots) ASSERT_TRUE(executor.kv().Reserve(slot, 128));

    const int64_t before = n_allocations;
    for (int64_t step = 0; step < 100; ++step) {
      // The second sequence begins with a chunk of eight rows.
      const int64_t lengths[2] = {executor.kv().length(slots[0]), executor.kv().length(slots[1])};
      const int64_t ends[2] = {step + 1, step + 8};
      SeqRows rows[2];
      for (int s = 0; s < 2; ++s) {
        rows[s] = {slots[s], std::span(text).first(static_cast<size_t>(ends[s])), lengths[s], 1};
      }
      executor.Step(rows);
      DraftSeq drafts[2];
      for (int s = 0; s < 2; ++s) {
        executor.kv().SetLength(slots[s], ends[s]);
        drafts[s] = {slots[s], text[static_cast<size_t>(step)], 0.5f, 1, 0, Stream::kTarget};
      }
      executor.Draft(drafts);
    }
    EXPECT_EQ(n_allocations, before) << numerics;
  }
}

}  // namespace
}  // namespace deepinfer
