#include "base/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

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

}  // namespace
}  // namespace deepinfer
