#include "base/topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>

namespace deepinfer {
namespace {

constexpr int kMaxCpus = 1 << 16;  // far above what Linux supports (8192)

// Reads a number at *at and moves past it; false when there is none.
bool TakeNumber(const char** at, const char* end, int* value) {
  const auto [next, error] = std::from_chars(*at, end, *value);
  if (error != std::errc() || *value < 0 || *value >= kMaxCpus) return false;
  *at = next;
  return true;
}

}  // namespace

std::vector<int> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* end = at + text.size();
  while (end > at && end[-1] == '\n') --end;
  while (at < end) {
    int first = 0;
    if (!TakeNumber(&at, end, &first)) return {};
    int last = first;
    if (at < end && *at == '-') {
      ++at;
      if (!TakeNumber(&at, end, &last)) return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at == end) break;
    if (*at != ',') return {};
    ++at;
  }
  return cpus;
}

std::vector<int> AllowedCpus() {
  // The kernel refuses a mask that is smaller than its own; double until it fits.
  for (int size = 1024; size <= kMaxCpus; size *= 2) {
    cpu_set_t* mask = CPU_ALLOC(size);
    const size_t bytes = CPU_ALLOC_SIZE(size);
    std::vector<int> cpus;
    if (sched_getaffinity(0, bytes, mask) == 0) {
      for (int cpu = 0; cpu < size; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, mask)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(mask);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

std::vector<int> OneCpuPerCore(const std::vector<int>& cpus, const std::string& sysfs) {
  std::vector<int> cores, taken;
  for (int cpu : cpus) {
    if (std::find(taken.begin(), taken.end(), cpu) != taken.end()) continue;
    cores.push_back(cpu);
    std::ifstream file(sysfs + "/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string line;
    std::getline(file, line);
    for (int sibling : ParseCpuList(line)) taken.push_back(sibling);
  }
  std::sort(cores.begin(), cores.end());
  return cores;
}

}  // namespace deepinfer
