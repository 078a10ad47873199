#include "obs/bandwidth.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/arena.h"
#include "base/team.h"

namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMiB = 1 << 20;
constexpr double kSeconds = 0.2;  // of passes; touching the buffer takes about as long

// Twice the last cache, at least 64 MiB; half a GiB is enough to see the memory behind any cache.
int64_t BufferBytes() {
  const int64_t cache_bytes = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  return std::clamp(2 * cache_bytes, 64 * kMiB, 512 * kMiB);
}

struct Pass {
  uint64_t* words;
  int64_t n_words;
  int threads;
  bool fill;
  std::atomic<uint64_t> sum{0};  // used, so that the reads are not left out
};

void Part(void* context, int tid) {
  Pass& pass = *static_cast<Pass*>(context);
  const int64_t per_thread = pass.n_words / pass.threads / 8 * 8;
  uint64_t* words = pass.words + tid * per_thread;
  if (pass.fill) {
    for (int64_t i = 0; i < per_thread; ++i) words[i] = static_cast<uint64_t>(i);
    return;
  }
  uint64_t sums[8] = {};  // independent, so that additions do not wait for each other
  for (int64_t i = 0; i < per_thread; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  for (uint64_t sum : sums) pass.sum += sum;
}

}  // namespace

double MeasureReadBandwidth(int threads) {
  const Arena arena("buffer to measure read bandwidth", BufferBytes());
  Team team(threads);
  Pass pass{reinterpret_cast<uint64_t*>(arena.base()), arena.bytes() / 8, threads, true};
  team.Run(Part, &pass);
  pass.fill = false;
  double best = 0;
  const Clock::time_point start = Clock::now();
  Clock::time_point now = start;
  do {
    const Clock::time_point begin = now;
    team.Run(Part, &pass);
    now = Clock::now();
    best = std::max(best, static_cast<double>(arena.bytes()) /
                              std::chrono::duration<double>(now - begin).count());
  } while (std::chrono::duration<double>(now - start).count() < kSeconds);
  return best;
}

}  // namespace deepinfer
