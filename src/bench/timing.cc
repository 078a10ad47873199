#include "bench/timing.h"

#include <time.h>

#include <algorithm>

#include "base/check.h"

namespace deepinfer {
namespace {

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double SlowestSeconds(Team& team, const std::function<void(Work)>& body) {
  struct Context {
    const std::function<void(Work)>& body;
    int n;
    std::vector<double> seconds;
  } context = {body, team.size(), std::vector<double>(static_cast<size_t>(team.size()))};
  team.Run(
      [](void* opaque, int tid) {
        Context& c = *static_cast<Context*>(opaque);
        const double begin = ThreadSeconds();
        c.body(Work{tid, c.n});
        c.seconds[static_cast<size_t>(tid)] = ThreadSeconds() - begin;
      },
      &context);
  return *std::max_element(context.seconds.begin(), context.seconds.end());
}

double Samples::Percentile(double p) const {
  DI_CHECK(!values_.empty());
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<size_t>(p * static_cast<double>(sorted.size()))];
}

}  // namespace deepinfer
