#include "parallel/thread_comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/error.h"

namespace deepinfer {
namespace {

using std::chrono::milliseconds;

// Runs every rank of a world on a thread of its own.
void OnRanks(int ranks, milliseconds deadline, const std::function<void(Comm&)>& body) {
  const auto comms = MakeThreadWorld(ranks, deadline);
  std::vector<std::thread> threads;
  for (const auto& comm : comms) threads.emplace_back([&] { body(*comm); });
  for (std::thread& t : threads) t.join();
}

void OnRanks(int ranks, const std::function<void(Comm&)>& body) {
  OnRanks(ranks, milliseconds(60'000), body);
}

std::string FailureOf(const Comm& comm) {
  try {
    comm.ThrowIfFailed();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kIo);
    return e.what();
  }
  return "";
}

TEST(ThreadCommTest, MergeKeepsTheBitsOfTheOneWhoSetThem) {
  const uint32_t kWords[] = {0x80000000, 0x7fc00001, 1, 0xff800000, 0, 0x12345678, 0x80000001};
  OnRanks(3, [&](Comm& comm) {
    uint32_t words[7] = {};
    for (int i = 0; i < 7; ++i) {
      if (i % 3 == comm.rank()) words[i] = kWords[i];
    }
    comm.Merge(words, 7);
    EXPECT_THAT(words, ::testing::ElementsAreArray(kWords));
  });
}

// In rank order another order would give other bits: 1 + 2^-24 + 2^-24 is 1, or not.
TEST(ThreadCommTest, SumAddsInRankOrder) {
  for (const int ranks : {3, 6}) {
    OnRanks(ranks, [&](Comm& comm) {
      float values[2] = {0, 0};
      if (comm.rank() < 3) {
        values[0] = comm.rank() == 0 ? 1.0f : 0x1p-24f;
        values[1] = comm.rank() == 2 ? 1.0f : 0x1p-24f;
      }
      comm.Sum(values, 2);
      EXPECT_EQ(values[0], 1.0f);
      EXPECT_EQ(values[1], 1.0f + 0x1p-23f);
    });
  }
}

TEST(ThreadCommTest, GatherFillsTheColumnsOfAll) {
  const std::vector<int64_t> cuts = {0, 3, 3, 7};
  OnRanks(3, [&](Comm& comm) {
    std::vector<float> rows(4 * 9, -1);
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = cuts[comm.rank()]; c < cuts[comm.rank() + 1]; ++c)
        rows[r * 9 + c] = static_cast<float>(r * 100 + c);
    }
    comm.Gather(rows.data(), 4, 9, cuts);
    for (int64_t i = 0; i < 36; ++i)
      EXPECT_EQ(rows[i], i % 9 < 7 ? static_cast<float>(i / 9 * 100 + i % 9) : -1) << i;
  });
}

TEST(ThreadCommTest, EveryRootCanBroadcast) {
  OnRanks(4, [&](Comm& comm) {
    for (int root = 0; root < 4; ++root) {
      int64_t value = comm.rank();
      comm.Broadcast(&value, sizeof value, root);
      EXPECT_EQ(value, root);
    }
    comm.Broadcast(nullptr, 0, 1);
    EXPECT_EQ(FailureOf(comm), "");
  });
}

TEST(ThreadCommTest, SplitGroupsByColorInOrder) {
  OnRanks(6, [&](Comm& comm) {
    const auto neighbours = comm.Split(comm.rank() / 3, "near"),
               equals = comm.Split(comm.rank() % 3, "equal");
    EXPECT_EQ(neighbours->size(), 3);
    EXPECT_EQ(neighbours->rank(), comm.rank() % 3);
    EXPECT_EQ(equals->size(), 2);
    EXPECT_EQ(equals->rank(), comm.rank() / 3);
    for (int i = 0; i < 50; ++i) {
      uint32_t a = 1u << comm.rank(), b = a;
      neighbours->Merge(&a, 1);
      equals->Merge(&b, 1);
      EXPECT_EQ(a, comm.rank() < 3 ? 0b000111u : 0b111000u);
      EXPECT_EQ(b, 0b001001u << comm.rank() % 3);
    }
  });
}

TEST(ThreadCommTest, ARankThatLeavesEndsInAReportForAll) {
  OnRanks(4, milliseconds(100), [&](Comm& comm) {
    const auto pair = comm.Split(comm.rank() / 2, "pair");
    if (comm.rank() == 2) return;
    uint32_t word = 1;
    comm.Merge(&word, 1);
    const std::string why = FailureOf(comm);
    EXPECT_THAT(why,
                ::testing::HasSubstr("of world (merge, 4 bytes): expected 4 ranks within 100"));
    EXPECT_THAT(why, ::testing::EndsWith("missing 2"));
    pair->Merge(&word, 1);  // returns: the world has failed
    EXPECT_EQ(FailureOf(*pair), why);
  });
}

TEST(ThreadCommTest, OtherCallsThanTheOthersEndInAReportForAll) {
  OnRanks(3, [&](Comm& comm) {
    uint32_t words[2] = {};
    comm.Merge(words, comm.rank() == 1 ? 2 : 1);
    EXPECT_THAT(FailureOf(comm), ::testing::HasSubstr("call 1 of world: rank"));
    EXPECT_THAT(FailureOf(comm), ::testing::HasSubstr("merge with 8"));
  });
  OnRanks(2, [&](Comm& comm) {
    uint32_t word = 0;
    if (comm.rank() == 0)
      comm.Merge(&word, 1);
    else
      comm.Broadcast(&word, 4, 1);
    EXPECT_THAT(FailureOf(comm), ::testing::HasSubstr("merge with 4"));
  });
}

TEST(ThreadCommTest, AnIdleRootIsWaitedForUntilSomeoneAborts) {
  OnRanks(3, milliseconds(20), [&](Comm& comm) {
    int64_t value = comm.rank();
    if (comm.rank() == 0) std::this_thread::sleep_for(milliseconds(60));
    comm.Broadcast(&value, sizeof value, 0);
    EXPECT_EQ(value, 0);
    if (comm.rank() == 0)
      comm.Abort("no model");
    else
      comm.Broadcast(&value, sizeof value, 0);
    EXPECT_EQ(FailureOf(comm), "no model");
  });
}

}  // namespace
}  // namespace deepinfer
