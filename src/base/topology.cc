#include "base/topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

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

// The numbers of a small file; what is no number ends the list.
std::vector<double> ReadNumbers(const std::string& path) {
  std::ifstream file(path);
  std::vector<double> numbers;
  for (double number; file >> number;) numbers.push_back(number);
  return numbers;
}

// Quota over period of one control group; 0: none.
double GroupQuota(const std::string& group, bool version2) {
  std::vector<double> times;
  if (version2) {
    times = ReadNumbers(group + "/cpu.max");  // "200000 100000", or "max 100000"
  } else {
    times = ReadNumbers(group + "/cpu.cfs_quota_us");  // -1: no limit
    for (double period : ReadNumbers(group + "/cpu.cfs_period_us")) times.push_back(period);
  }
  return times.size() == 2 && times[0] > 0 && times[1] > 0 ? times[0] / times[1] : 0;
}

// Whether a comma-separated list of controllers holds "cpu".
bool HasCpu(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string one; std::getline(list, one, ',');) {
    if (one == "cpu") return true;
  }
  return false;
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

// A line is "hierarchy:controllers:/path"; version 2 has one, "0::/path". Inside a container the
// path may be the host's; the root of the mount is then the container's own group.
int CpuQuota(const std::string& cgroups, const std::string& self) {
  double least = 0;
  std::ifstream file(self);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !HasCpu(controllers)) continue;
    const std::string mount = cgroups + (controllers.empty() ? "" : "/cpu");
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      const double quota = GroupQuota(mount + path, controllers.empty());
      if (quota > 0 && (least == 0 || quota < least)) least = quota;
      if (path.find('/') == std::string::npos) break;
    }
  }
  return static_cast<int>(std::ceil(least));
}

int DefaultThreads() {
  const int cores = static_cast<int>(OneCpuPerCore(AllowedCpus()).size()), quota = CpuQuota();
  return quota > 0 ? std::min(quota, cores) : cores;
}

std::vector<int> PlaceThreads(int threads, const std::vector<int>& cores) {
  return std::cmp_equal(threads, cores.size()) ? cores : std::vector<int>();
}

void BindThread(pthread_t thread, int cpu) {
  cpu_set_t* mask = CPU_ALLOC(cpu + 1);
  const size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(bytes, mask);
  CPU_SET_S(cpu, bytes, mask);
  pthread_setaffinity_np(thread, bytes, mask);
  CPU_FREE(mask);
}

}  // namespace deepinfer
