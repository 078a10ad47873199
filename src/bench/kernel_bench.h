// Times kernels beside the limits that bound them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/limits.h"

namespace deepinfer {

struct KernelBenchOptions {
  std::vector<std::string> ops;   // of KernelOp::Names()
  std::vector<std::string> isas;  // levels of SelectKernels
  std::vector<int> rows, threads;
  double seconds = 0.3;  // of samples per line
};

// One op, level, number of rows and of threads. Times are CPU seconds of the slowest thread, the
// 5th percentile of the samples; limits were sampled in between.
struct KernelResult {
  std::string op, shape, isa;
  bool has_weights;  // else its data came from the caches, and so did that of the read loop
  int rows, threads, samples;
  double seconds, median_seconds;
  double bytes, flops;  // of one run; flops 0: not counted
  MachineLimits limits;
  bool slow_tiles;  // the tile loop reached less than 0.8 of its best in this process

  double ReadShare() const { return bytes / seconds / limits.read_bytes_per_s; }
  // Of the tile loop where the level has tiles and the op uses them, else of the FMA loop.
  double PeakShare() const;
};

// Memory for the weights of one op, and what else a case needs.
int64_t KernelBenchBytes(const KernelBenchOptions& options);

// Calls `report` for every line as it is done. Throws Error{kInvalid} for unknown ops or when the
// memory is not there, kUnsupported for a level that this CPU cannot run.
void RunKernelBench(const KernelBenchOptions& options,
                    const std::function<void(const KernelResult&)>& report);

}  // namespace deepinfer
