// The kernels that are timed, at the released model's shapes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/weight_pool.h"
#include "ops/kernel_table.h"

namespace deepinfer {

// One op at one number of rows. Calls are numbered: call i uses other weights than call i + 1.
struct KernelCase {
  int64_t calls;    // after so many the first weights come again
  int64_t repeats;  // run() this often for one sample: ops whose data stays in the caches
  int64_t bytes;    // of weights, or of activations, that one run reads and writes
  double flops;     // multiplications and additions of one run; 0: not counted
  std::function<const uint8_t*(int64_t call)> data;  // where these bytes begin
  std::function<void(int64_t call, Work work)> run;
};

// An op of the released model with its weights.
class KernelOp {
 public:
  // Fills the pool. cut > 1: a narrow model instead, as many times fewer rows and columns. Throws
  // Error{kInvalid} for a name that is not among Names().
  KernelOp(const std::string& name, WeightPool& pool, int cut = 1);

  static std::vector<std::string> Names();

  const std::string& name() const { return name_; }
  const std::string& shape() const { return shape_; }  // "fp4 [2304, 5120] x 2"
  bool has_weights() const { return has_weights_; }

  // The case may be used as long as the pool holds this op's weights.
  KernelCase Case(const KernelTable& kernels, int rows, int threads) const {
    return make_(kernels, rows, threads);
  }

 private:
  std::string name_, shape_;
  bool has_weights_;
  std::function<KernelCase(const KernelTable&, int rows, int threads)> make_;
};

}  // namespace deepinfer
