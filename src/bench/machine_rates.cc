#include "bench/machine_rates.h"

#include <algorithm>

#include "bench/kernel_bench.h"

namespace deepinfer {

MachineRates MeasureMachineRates(const std::string& isa, int threads, double seconds) {
  MachineRates rates = {};
  KernelBenchOptions options;
  options.isas = {isa}, options.threads = {threads}, options.seconds = seconds;
  options.ops = {"gate_up", "wq_b"}, options.rows = {1};
  RunKernelBench(options, [&](const KernelResult& r) {
    const double elements_per_s = r.flops / 2 / r.seconds;
    (r.op == "wq_b" ? rates.fp8_elements_per_s : rates.fp4_elements_per_s) = elements_per_s;
    rates.read_bytes_per_s = std::max(rates.read_bytes_per_s, r.limits.read_bytes_per_s);
    rates.isa = r.isa, rates.threads = r.threads;
  });
  options.ops = {"gate_up"}, options.rows = {kManyRows};
  RunKernelBench(options, [&](const KernelResult& r) {
    rates.bf16_flops = r.flops / r.seconds;
    rates.peak_flops = r.limits.tile_flops > 0 ? r.limits.tile_flops : r.limits.fma_flops;
  });
  return rates;
}

}  // namespace deepinfer
