#include "base/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <numeric>

namespace deepinfer {
namespace {

TEST(Topology, ListsInTheKernelsForm) {
  EXPECT_EQ(ParseCpuList("0-3,8,10-11\n"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(ParseCpuList("7"), (std::vector<int>{7}));
  EXPECT_TRUE(ParseCpuList("").empty());
  EXPECT_TRUE(ParseCpuList("0-x").empty());
  EXPECT_TRUE(ParseCpuList("0;1").empty());
  EXPECT_TRUE(ParseCpuList("-1").empty());
  EXPECT_TRUE(ParseCpuList("0-99999999").empty());
}

class FakeSysfs : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "topology_test";
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void AddCpu(int cpu, const std::string& siblings) {
    const std::string folder = root_ + "/cpu" + std::to_string(cpu) + "/topology";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/thread_siblings_list") << siblings << "\n";
  }
  std::string root_;
};

TEST_F(FakeSysfs, OneCpuOfEveryCore) {
  for (int cpu = 0; cpu < 4; ++cpu) {
    AddCpu(cpu, std::to_string(cpu) + "," + std::to_string(cpu + 4));
    AddCpu(cpu + 4, std::to_string(cpu) + "," + std::to_string(cpu + 4));
  }
  std::vector<int> all(8);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(OneCpuPerCore(all, root_), (std::vector<int>{0, 1, 2, 3}));
  // A mask that holds only second threads still gives one CPU per core.
  EXPECT_EQ(OneCpuPerCore({1, 4, 5, 6}, root_), (std::vector<int>{1, 4, 6}));
}

TEST_F(FakeSysfs, WithoutSysfsEveryCpuIsACore) {
  EXPECT_EQ(OneCpuPerCore({0, 3}, root_), (std::vector<int>{0, 3}));
}

TEST(Topology, AllowedCpusFollowTheAffinityMask) {
  const std::vector<int> before = AllowedCpus();
  ASSERT_FALSE(before.empty());
  cpu_set_t saved, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof saved, &saved), 0);
  CPU_ZERO(&one);
  CPU_SET(before.back(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(AllowedCpus(), std::vector<int>{before.back()});
  ASSERT_EQ(sched_setaffinity(0, sizeof saved, &saved), 0);
  EXPECT_FALSE(OneCpuPerCore(before).empty());
}

}  // namespace
}  // namespace deepinfer
