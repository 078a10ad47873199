// What the files of kernel cases share. Private to bench/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/arena.h"
#include "bench/kernel_cases.h"

namespace deepinfer {

constexpr int32_t kHidden = 5120, kInter = 2304, kStreams = 4;
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

// The ops without weights.
struct ActivationOp {
  const char* name;
  std::string shape;
  std::function<KernelCase(const KernelTable&, int rows, int threads)> make;
};
std::vector<ActivationOp> ActivationOps();

}  // namespace deepinfer
