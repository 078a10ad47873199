// Runs every kernel once at narrow shapes, for valgrind to count instructions:
// tools/instruction_counts.py. Prints a line "<level> <op> <rows>" for each call of MeasuredRun, in
// order.
#include <cstdio>

#include "backend/cpu/select.h"
#include "base/cpu_features.h"
#include "bench/kernel_cases.h"

namespace deepinfer {
namespace {

constexpr int kCut = 8;  // of the released widths
constexpr int kRows[] = {1, 6};
constexpr int64_t kPoolBytes = 1 << 20;

}  // namespace
}  // namespace deepinfer

// What the counter looks for by name.
extern "C" __attribute__((noinline)) void MeasuredRun(const deepinfer::KernelCase& c) {
  c.run(0, {0, 1});
}

int main() {
  using namespace deepinfer;
  std::printf("g++ %s\n", __VERSION__);
  Team team(1);
  WeightPool pool(kPoolBytes, team);
  for (const char* isa : {"generic", "avx2"}) {  // valgrind knows no AVX-512
    const KernelTable& kernels = SelectKernels(DetectCpuFeatures(), isa);
    for (const std::string& name : KernelOp::Names()) {
      const KernelOp op(name, pool, kCut);
      for (const int rows : kRows) {
        const KernelCase c = op.Case(kernels, rows, 1);
        std::printf("%s %s %d\n", isa, name.c_str(), rows);
        MeasuredRun(c);
      }
    }
  }
}
