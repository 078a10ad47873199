#include "base/team.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/topology.h"

namespace deepinfer {
namespace {

struct Sums {
  Team* team;
  std::vector<int64_t> parts;
  int64_t total = 0;
  int rounds = 0;
};

// Every round each thread writes its part, thread 0 adds them up, and the next round starts from
// the total.
void AddUp(void* context, int tid) {
  Sums& s = *static_cast<Sums*>(context);
  for (int round = 0; round < s.rounds; ++round) {
    s.parts[static_cast<size_t>(tid)] = s.total + tid + round;
    s.team->Barrier();
    if (tid == 0) {
      for (int64_t part : s.parts) s.total += part;
      s.total %= 1000003;
    }
    s.team->Barrier();
  }
}

int64_t Expected(int threads, int runs, int rounds) {
  int64_t total = 0;
  for (int run = 0; run < runs; ++run) {
    for (int round = 0; round < rounds; ++round) {
      const int64_t before = total;
      for (int tid = 0; tid < threads; ++tid) total += before + tid + round;
      total %= 1000003;
    }
  }
  return total;
}

TEST(Team, BarriersOrderEveryRoundAtAnyThreadCount) {
  for (int threads : {1, 2, 3, 8}) {
    Team team(threads);
    Sums sums{&team, std::vector<int64_t>(static_cast<size_t>(threads)), 0, 50};
    for (int run = 0; run < 40; ++run) team.Run(AddUp, &sums);
    EXPECT_EQ(sums.total, Expected(threads, 40, 50)) << threads << " threads";
  }
}

TEST(Team, SleepingThreadsAreWokenByTheNextRun) {
  Team team(2);
  std::atomic<int> calls{0};
  for (int run = 0; run < 3; ++run) {
    team.Run([](void* c, int) { static_cast<std::atomic<int>*>(c)->fetch_add(1); }, &calls);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than the spinning
  }
  EXPECT_EQ(calls.load(), 6);
}

// Masks that the threads of a team may run in, as they find them.
std::vector<std::vector<int>> MasksOf(Team* team) {
  std::vector<std::vector<int>> masks(static_cast<size_t>(team->size()));
  team->Run(
      [](void* context, int tid) {
        (*static_cast<std::vector<std::vector<int>>*>(context))[static_cast<size_t>(tid)] =
            AllowedCpus();
      },
      &masks);
  return masks;
}

TEST(Team, OneThreadPerCoreIsBoundAndTheCallerIsNot) {
  const std::vector<int> allowed = AllowedCpus(), cores = OneCpuPerCore(allowed);
  Team team(static_cast<int>(cores.size()));
  const std::vector<std::vector<int>> masks = MasksOf(&team);
  EXPECT_EQ(masks[0], allowed);
  for (size_t tid = 1; tid < cores.size(); ++tid)
    EXPECT_EQ(masks[tid], std::vector<int>{cores[tid]});
  EXPECT_EQ(AllowedCpus(), allowed);
}

TEST(Team, MoreThreadsThanCoresAreNotBound) {
  const std::vector<int> allowed = AllowedCpus();
  Team team(static_cast<int>(OneCpuPerCore(allowed).size()) + 1);
  EXPECT_TRUE(team.cpus().empty());
  for (const std::vector<int>& mask : MasksOf(&team)) EXPECT_EQ(mask, allowed);
}

// A mask of one CPU, as taskset sets it: three threads share it, and none waits for another's time
// slice at every barrier.
TEST(Team, SharesOneCpuWithoutSpinning) {
  cpu_set_t saved, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof saved, &saved), 0);
  CPU_ZERO(&one);
  CPU_SET(AllowedCpus().front(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  Team team(3);
  Sums sums{&team, std::vector<int64_t>(3), 0, 500};
  for (int run = 0; run < 4; ++run) team.Run(AddUp, &sums);
  ASSERT_EQ(sched_setaffinity(0, sizeof saved, &saved), 0);
  EXPECT_TRUE(team.cpus().empty());
  EXPECT_EQ(sums.total, Expected(3, 4, 500));
}

}  // namespace
}  // namespace deepinfer
