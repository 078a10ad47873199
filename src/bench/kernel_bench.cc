#include "bench/kernel_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "backend/cpu/select.h"
#include "base/cpu_features.h"
#include "base/memory.h"
#include "bench/kernel_cases.h"
#include "bench/timing.h"

namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPoolBytes = (int64_t{1} << 30) / 8 * 13;    // far above any cache
constexpr int64_t kRowBytes = 4 * (32768 + 32768 + 3 * 5120);  // widest input, output, streams
constexpr int kLeastSamples = 3;
constexpr double kSlowTiles = 0.8;

// Samples of one line.
struct Line {
  Samples kernel, read, fma, int8, tiles;  // of the last three: seconds per operation
};

void AddRate(double rate, Samples* samples) {
  if (rate > 0) samples->Add(1 / rate);
}

double RateOf(const Samples& samples) { return samples.size() > 0 ? 1 / samples.Low() : 0; }

void SampleOnce(const KernelCase& c, int64_t call, Team& team, LimitMeter& meter, Line* line) {
  const int64_t other = (call + (c.calls + 1) / 2) % c.calls;  // as cold as the kernel's
  if (c.calls == 1) meter.ReadSeconds(c.data(0), c.bytes);     // what caches hold: both begin warm
  line->read.Add(meter.ReadSeconds(c.data(other), c.bytes, c.repeats));
  if (c.calls == 1) SlowestSeconds(team, [&](Work work) { c.run(0, work); });
  line->kernel.Add(SlowestSeconds(team, [&](Work work) {
    for (int64_t i = 0; i < c.repeats; ++i) c.run(call, work);
  }));
  AddRate(meter.TileRate(), &line->tiles);
  AddRate(meter.FmaRate(), &line->fma);
  AddRate(meter.Int8Rate(), &line->int8);
}

Line SampleLine(const KernelCase& c, double seconds, Team& team, LimitMeter& meter) {
  Line line;
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(seconds));
  SlowestSeconds(team, [&](Work work) { c.run(c.calls - 1, work); });  // first touch of outputs
  for (int i = 0; i < kLeastSamples || Clock::now() < end; ++i)
    SampleOnce(c, i % c.calls, team, meter, &line);
  return line;
}

KernelResult ResultOf(const KernelOp& op, const KernelCase& c, const Line& line) {
  KernelResult result = {};
  result.op = op.name(), result.shape = op.shape();
  result.has_weights = op.has_weights();
  result.samples = static_cast<int>(line.kernel.size());
  const double repeats = static_cast<double>(c.repeats);
  result.seconds = line.kernel.Low() / repeats;
  result.median_seconds = line.kernel.Median() / repeats;
  result.bytes = static_cast<double>(c.bytes), result.flops = c.flops;
  result.limits.read_bytes_per_s = result.bytes * repeats / line.read.Low();
  result.limits.fma_flops = RateOf(line.fma);
  result.limits.int8_ops = RateOf(line.int8);
  result.limits.tile_flops = RateOf(line.tiles);
  return result;
}

}  // namespace

double KernelResult::PeakShare() const {
  const bool tiles = limits.tile_flops > 0 && op != "mixer";  // fp32 weights are no bf16 values
  return flops / seconds / (tiles ? limits.tile_flops : limits.fma_flops);
}

int64_t KernelBenchBytes(const KernelBenchOptions& options) {
  const int rows = *std::max_element(options.rows.begin(), options.rows.end());
  return kPoolBytes + rows * kRowBytes;
}

void RunKernelBench(const KernelBenchOptions& options,
                    const std::function<void(const KernelResult&)>& report) {
  const CpuFeatures& features = DetectCpuFeatures();
  for (const std::string& isa : options.isas) SelectKernels(features, isa);
  CheckMemory("bench kernels", KernelBenchBytes(options));
  Team filler(*std::max_element(options.threads.begin(), options.threads.end()));
  WeightPool pool(kPoolBytes, filler);
  double best_tiles = 0;  // a thread
  for (const std::string& name : options.ops) {
    const KernelOp op(name, pool);
    for (const int threads : options.threads) {
      Team team(threads);
      for (const std::string& isa : options.isas) {
        const KernelTable& kernels = SelectKernels(features, isa);
        LimitMeter meter(team, kernels.isa);
        for (const int rows : options.rows) {
          const KernelCase c = op.Case(kernels, rows, threads);
          KernelResult result = ResultOf(op, c, SampleLine(c, options.seconds, team, meter));
          result.isa = kernels.isa, result.rows = rows, result.threads = threads;
          const double tiles = result.limits.tile_flops / threads;
          best_tiles = std::max(best_tiles, tiles);
          result.slow_tiles = tiles > 0 && tiles < kSlowTiles * best_tiles;
          report(result);
        }
      }
    }
  }
}

}  // namespace deepinfer
