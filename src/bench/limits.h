// What this machine can do at most, measured in this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/limits.h"
#include "base/arena.h"
#include "base/team.h"

namespace deepinfer {

// All threads together; 0 where the level has no such instruction.
struct MachineLimits {
  double read_bytes_per_s = 0;  // from memory
  double fma_flops = 0;         // fp32, registers
  double int8_ops = 0;
  double tile_flops = 0;  // bf16 tiles, operands from the second level cache
};

// Runs the limit loops of one level on a team. One call is one sample: interleave with what is
// measured.
class LimitMeter {
 public:
  // `isa`: a level that this CPU can run.
  LimitMeter(Team& team, const std::string& isa);

  // CPU seconds of the slowest thread; the threads share [data, data + bytes) and read it `repeats`
  // times.
  double ReadSeconds(const uint8_t* data, int64_t bytes, int64_t repeats = 1);

  // Operations per second of all threads, over about a millisecond.
  double FmaRate();
  double Int8Rate();
  double TileRate();

 private:
  double Rate(const std::function<double(int64_t rounds, int tid)>& loop, int64_t* rounds);

  Team& team_;
  const LimitLoops loops_;
  std::vector<Arena> operands_;  // of the tile loop, one a thread
  std::vector<uint32_t> sinks_;
  int64_t fma_rounds_ = 0, int8_rounds_ = 0, tile_rounds_ = 0;
};

// The best of several samples, about half a second and 1 GiB of memory. Throws Error{kInvalid} when
// the memory is not there.
MachineLimits MeasureLimits(int threads, const std::string& isa);

}  // namespace deepinfer
