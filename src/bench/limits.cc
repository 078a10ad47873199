#include "bench/limits.h"

#include <algorithm>

#include "base/memory.h"
#include "bench/timing.h"
#include "bench/weight_pool.h"

namespace deepinfer {
namespace {

constexpr double kLoopSeconds = 1.2e-3;  // long enough to warm operands that a kernel pushed out
constexpr int64_t kReadBytes = int64_t{1} << 30;
constexpr int kSamples = 5;
constexpr size_t kSinkStride = 16;  // a cache line each

}  // namespace

LimitMeter::LimitMeter(Team& team, const std::string& isa)
    : team_(team), loops_(LimitLoopsOf(isa.c_str())) {
  sinks_.resize(static_cast<size_t>(team.size()) * kSinkStride);
  if (loops_.tiles == nullptr) return;
  for (int t = 0; t < team.size(); ++t) {
    operands_.emplace_back("operands of the tile loop", 2 * kTileOperandWords);
    FillWeights(DType::kBf16, static_cast<uint64_t>(t),
                reinterpret_cast<uint8_t*>(operands_.back().base()), 2 * kTileOperandWords);
  }
}

double LimitMeter::ReadSeconds(const uint8_t* data, int64_t bytes, int64_t repeats) {
  return SlowestSeconds(team_, [&](Work work) {
    const Span part = SplitWork(bytes / kReadUnit * kReadUnit, kReadUnit, work);
    for (int64_t i = 0; i < repeats; ++i) {
      loops_.read(data + part.begin, part.end - part.begin,
                  &sinks_[static_cast<size_t>(work.tid) * kSinkStride]);
    }
  });
}

double LimitMeter::Rate(const std::function<double(int64_t rounds, int tid)>& loop,
                        int64_t* rounds) {
  double operations = 0;
  const auto measure = [&](int64_t n) {
    return SlowestSeconds(team_, [&](Work work) {
      const double done = loop(n, work.tid);
      if (work.tid == 0) operations = done * work.n;
    });
  };
  for (int64_t n = 1; *rounds == 0; n *= 4) {
    const double seconds = measure(n);
    if (seconds > kLoopSeconds / 8)
      *rounds = static_cast<int64_t>(static_cast<double>(n) * kLoopSeconds / seconds) + 1;
  }
  const double seconds = measure(*rounds);
  return operations / seconds;
}

double LimitMeter::FmaRate() {
  return Rate(
      [&](int64_t n, int tid) {
        return loops_.fma(
            n, reinterpret_cast<float*>(&sinks_[static_cast<size_t>(tid) * kSinkStride]));
      },
      &fma_rounds_);
}

double LimitMeter::Int8Rate() {
  if (loops_.int8 == nullptr) return 0;
  return Rate(
      [&](int64_t n, int tid) {
        return loops_.int8(
            n, reinterpret_cast<int32_t*>(&sinks_[static_cast<size_t>(tid) * kSinkStride]));
      },
      &int8_rounds_);
}

double LimitMeter::TileRate() {
  if (loops_.tiles == nullptr) return 0;
  return Rate(
      [&](int64_t n, int tid) {
        const Arena& operands = operands_[static_cast<size_t>(tid)];
        return loops_.tiles(
            n, reinterpret_cast<const uint16_t*>(operands.base()),
            reinterpret_cast<float*>(&sinks_[static_cast<size_t>(tid) * kSinkStride]));
      },
      &tile_rounds_);
}

MachineLimits MeasureLimits(int threads, const std::string& isa) {
  CheckMemory("memory to measure the read bandwidth", kReadBytes);
  Team team(threads);
  WeightPool pool(kReadBytes, team);
  LimitMeter meter(team, isa);
  MachineLimits limits;
  for (int i = 0; i < kSamples; ++i) {
    const double seconds = meter.ReadSeconds(pool.base(), kReadBytes);
    limits.read_bytes_per_s =
        std::max(limits.read_bytes_per_s, static_cast<double>(kReadBytes) / seconds);
    limits.fma_flops = std::max(limits.fma_flops, meter.FmaRate());
    limits.int8_ops = std::max(limits.int8_ops, meter.Int8Rate());
    limits.tile_flops = std::max(limits.tile_flops, meter.TileRate());
  }
  return limits;
}

}  // namespace deepinfer
