// What the files of kernel cases share. Private to bench/.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/arena.h"
#include "bench/kernel_cases.h"

namespace deepinfer {

// The released model, or a narrow one with the same structure: `cut` times fewer of everything that
// is counted in hundreds.
struct Shapes {
  explicit Shapes(int32_t cut_by)
      : cut(cut_by),
        hidden(5120 / cut),
        inter(2304 / cut),
        q_lora_rank(1280 / cut),
        o_lora_rank(1024 / cut),
        heads(64 / cut),
        window(128 / cut),
        topk(512 / cut),
        index_heads(32 / cut),
        vocab(129280 / cut),
        compressed_rows(8192 / cut),
        index_keys(65536 / cut) {}

  int32_t cut, hidden, inter, q_lora_rank, o_lora_rank, heads, window, topk, index_heads, vocab;
  int32_t compressed_rows, index_keys;  // in the caches
  static constexpr int32_t kStreams = 4, kOGroups = 8, kHeadDim = 512, kIndexDim = 128;
};

constexpr float kEps = 1e-6f;

// Buffers that a case keeps: one arena, cut into float arrays that begin 64-byte aligned.
class CaseBuffers {
 public:
  explicit CaseBuffers(int64_t floats) : arena_("activations of a kernel case", 4 * floats) {}

  // The next `n` floats; the constructor counted RoundUp(n) of every call.
  float* Take(int64_t n);
  static int64_t RoundUp(int64_t n) { return (n + 15) / 16 * 16; }

 private:
  Arena arena_;
  int64_t used_ = 0;
};

enum class Grid { kF32, kBf16, kQ8 };

// Random values with exponents -7 ... 0, rounded to the grid; cols is a multiple of 32.
void FillActivations(const KernelTable& kernels, Grid grid, int32_t rows, int64_t cols, float* x);

struct CaseState {
  int32_t n_rows;
  CaseBuffers buffers;
};

inline std::shared_ptr<CaseState> MakeCaseState(int rows, int64_t floats) {
  return std::make_shared<CaseState>(CaseState{rows, CaseBuffers(floats)});
}

// A case over `bytes` from `data` on, which the caches hold.
KernelCase CachedCase(const float* data, int64_t bytes, std::function<void(Work)> run);

// An op without weights.
struct ActivationOp {
  const char* name;
  std::string (*shape)(const Shapes& s);
  KernelCase (*make)(const Shapes& s, const KernelTable& k, int rows, int threads);
};
std::span<const ActivationOp> ElementwiseOps();
std::span<const ActivationOp> AttentionOps();

}  // namespace deepinfer
