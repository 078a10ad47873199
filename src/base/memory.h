// How much memory the system has, and how much it can still give.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

// MemAvailable of /proc/meminfo in bytes; -1 where it cannot be read.
int64_t AvailableMemoryBytes(const std::string& meminfo = "/proc/meminfo");

// MemTotal, likewise.
int64_t TotalMemoryBytes(const std::string& meminfo = "/proc/meminfo");

// Throws Error{kInvalid}, one sentence with both sizes, when `bytes` for `what` do not fit in what
// is available. Memory that cannot be asked for counts as enough.
void CheckMemory(const std::string& what, int64_t bytes);

}  // namespace deepinfer
