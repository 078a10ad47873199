// Which CPUs this process may use, which of them share a core, and who runs where.
#pragma once

#include <pthread.h>

#include <string>
#include <vector>

namespace deepinfer {

// Logical CPUs of the affinity mask of the calling thread, ascending. Never empty: {0} where the
// mask cannot be read.
std::vector<int> AllowedCpus();

// The first of `cpus` of every physical core, ascending. Siblings are read from
// <sysfs>/cpu<N>/topology/thread_siblings_list; a CPU without that file counts as a core of its
// own.
std::vector<int> OneCpuPerCore(const std::vector<int>& cpus,
                               const std::string& sysfs = "/sys/devices/system/cpu");

// Processors' worth of time that the control groups of this process grant it, rounded up; 0: no
// limit is known. Reads cpu.max (version 2) or cpu.cfs_quota_us (version 1) of the process's group
// and of those around it.
int CpuQuota(const std::string& cgroups = "/sys/fs/cgroup",
             const std::string& self = "/proc/self/cgroup");

// One thread per core that the process may use, no more than its quota.
int DefaultThreads();

// The CPU of every thread: one of `cores` each when there are as many threads as cores, else empty:
// no thread is bound. Fewer threads leave the choice to the system, so that two processes do not
// end up on the same cores; with more, threads take turns anyway.
std::vector<int> PlaceThreads(int threads, const std::vector<int>& cores);

// Binds a thread to a CPU. Where the system refuses, the thread stays where it may run now.
void BindThread(pthread_t thread, int cpu);

// CPU numbers of a list in the kernel's form: "0-3,8,10-11". Text that is no such list gives an
// empty result.
std::vector<int> ParseCpuList(const std::string& text);

}  // namespace deepinfer
