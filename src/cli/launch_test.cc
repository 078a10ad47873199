#include "cli/launch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace deepinfer {
namespace {

TEST(Launch, RanksAreANumberOrAuto) {
  EXPECT_EQ(ParseRanks("7"), 7);
  EXPECT_GE(ParseRanks("auto"), 1);
  for (const char* text : {"", "0", "-1", "2x", "1025", "99999999999", "Auto", " 2"})
    EXPECT_THROW(ParseRanks(text), Error) << text;
}

TEST(Launch, MemoryNodesAreThoseOfTheCpus) {
  const std::string sysfs = testing::TempDir() + "launch_test_nodes." + std::to_string(getpid());
  const auto write = [&](const char* node, const char* cpus) {
    std::filesystem::create_directories(sysfs + "/" + node);
    std::ofstream(sysfs + "/" + node + "/cpulist") << cpus << "\n";
  };
  write("node0", "0-3,8-11"), write("node1", "4-7,12-15"), write("node2", "");  // memory alone
  std::ofstream(sysfs + "/online") << "0-2\n";
  EXPECT_EQ(MemoryNodes({0, 1, 4, 5}, sysfs), 2);
  EXPECT_EQ(MemoryNodes({9, 10}, sysfs), 1);
  EXPECT_EQ(MemoryNodes({0}, sysfs + "/none"), 1);
  std::filesystem::remove_all(sysfs);
}

TEST(Launch, EveryRankHasCoresOfItsOwnWhereItCan) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(PlacementOptions(2, 64, 2), (Words{"--map-by", "ppr:1:numa", "--bind-to", "numa"}));
  EXPECT_EQ(PlacementOptions(3, 64, 2), (Words{"--map-by", "slot:PE=21", "--bind-to", "core"}));
  EXPECT_EQ(PlacementOptions(2, 2, 1), (Words{"--map-by", "slot:PE=1", "--bind-to", "core"}));
  EXPECT_EQ(PlacementOptions(4, 2, 1)[0], "--oversubscribe");
}

}  // namespace
}  // namespace deepinfer
