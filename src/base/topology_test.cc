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

TEST(Topology, ThreadsAreBoundOnlyWhenEveryCoreGetsOne) {
  EXPECT_EQ(PlaceThreads(3, {0, 2, 5}), (std::vector<int>{0, 2, 5}));
  EXPECT_TRUE(PlaceThreads(2, {0, 2, 5}).empty());
  EXPECT_TRUE(PlaceThreads(4, {0, 2, 5}).empty());
}

class FakeCgroups : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "cgroup_test";
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  int Quota() { return CpuQuota(root_, root_ + "/self"); }
  std::string root_;
};

TEST_F(FakeCgroups, NoFilesAndNoLimitsMeanNoQuota) {
  EXPECT_EQ(Quota(), 0);
  Write("/self", "0::/user/app");
  EXPECT_EQ(Quota(), 0);
  Write("/user/app/cpu.max", "max 100000");
  EXPECT_EQ(Quota(), 0);
}

TEST_F(FakeCgroups, TheSmallestOfTheGroupsAroundCounts) {
  Write("/self", "0::/user/app");
  Write("/user/app/cpu.max", "800000 100000");
  EXPECT_EQ(Quota(), 8);
  Write("/user/cpu.max", "250000 100000");
  EXPECT_EQ(Quota(), 3);  // two and a half
  Write("/cpu.max", "50000 100000");
  EXPECT_EQ(Quota(), 1);
}

TEST_F(FakeCgroups, Version1) {
  Write("/self", "4:memory:/app\n2:cpuacct,cpu:/app\n1:cpuset:/app");
  Write("/cpu/app/cpu.cfs_quota_us", "-1");
  Write("/cpu/app/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Quota(), 0);
  Write("/cpu/app/cpu.cfs_quota_us", "400000");
  EXPECT_EQ(Quota(), 4);
  Write("/memory/app/cpu.max", "100000 100000");  // not where the controller is
  EXPECT_EQ(Quota(), 4);
}

TEST(Topology, DefaultThreadsAreOnePerCoreAtMost) {
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_LE(DefaultThreads(), std::ssize(OneCpuPerCore(AllowedCpus())));
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
