#include "base/memory.h"

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace deepinfer {

namespace {

// "<key>  123 kB"
int64_t Bytes(const std::string& meminfo, const char* wanted) {
  std::ifstream file(meminfo);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t kib = -1;
    if (words >> key >> kib && key == wanted) return kib * 1024;
  }
  return -1;
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& meminfo) { return Bytes(meminfo, "MemAvailable:"); }

int64_t TotalMemoryBytes(const std::string& meminfo) { return Bytes(meminfo, "MemTotal:"); }

void CheckMemory(const std::string& what, int64_t bytes) {
  const int64_t available = AvailableMemoryBytes();
  if (available < 0 || bytes <= available) return;
  constexpr int64_t kMiB = 1 << 20;
  throw Error(Code::kInvalid, what + ": needs " + std::to_string(bytes / kMiB) + " MiB, " +
                                  std::to_string(available / kMiB) + " MiB are available");
}

}  // namespace deepinfer
