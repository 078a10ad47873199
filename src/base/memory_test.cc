#include "base/memory.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"

namespace deepinfer {
namespace {

TEST(Memory, ReadsWhatTheSystemSays) {
  const std::string path = testing::TempDir() + "meminfo";
  std::ofstream(path) << "MemTotal:  100 kB\nMemFree: 3 kB\nMemAvailable:      7 kB\n";
  EXPECT_EQ(AvailableMemoryBytes(path), 7 * 1024);
  EXPECT_EQ(TotalMemoryBytes(path), 100 * 1024);
  std::ofstream(path) << "MemTotal:  100 kB\n";
  EXPECT_EQ(AvailableMemoryBytes(path), -1);
  EXPECT_EQ(AvailableMemoryBytes(path + ".absent"), -1);
}

TEST(Memory, RefusesWhatDoesNotFit) {
  CheckMemory("nothing", 0);
  try {
    CheckMemory("weights", int64_t{1} << 60);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(std::string(e.what()), testing::StartsWith("weights: needs 1099511627776 MiB, "));
  }
}

}  // namespace
}  // namespace deepinfer
