// The rates that a prediction of a step needs, measured at the released shapes.
#pragma once

#include <string>

namespace deepinfer {

// All threads together.
struct MachineRates {
  std::string isa;
  int threads;
  double read_bytes_per_s;                        // the read loop
  double fp4_elements_per_s, fp8_elements_per_s;  // one row, weights from memory
  double bf16_flops;                              // fp4 experts, 512 rows each
  double peak_flops;  // the tile loop, or the FMA loop where there are no tiles
};

constexpr int kManyRows = 512;

// About three times `seconds`. Throws as RunKernelBench does.
MachineRates MeasureMachineRates(const std::string& isa, int threads, double seconds);

}  // namespace deepinfer
