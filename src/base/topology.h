// Which CPUs this process may use, and which of them share a core.
#pragma once

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

// CPU numbers of a list in the kernel's form: "0-3,8,10-11". Text that is no such list gives an
// empty result.
std::vector<int> ParseCpuList(const std::string& text);

}  // namespace deepinfer
