#include "engine/rank_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "base/error.h"
#include "parallel/thread_comm.h"

namespace deepinfer {
namespace {

using Kind = RankRecords::Kind;

// A driver and a follower, each on a thread of its own.
void OnTwo(const std::function<void(Comm*)>& driver, const std::function<void(Comm*)>& follower) {
  const auto comms = MakeThreadWorld(2, std::chrono::seconds(60));
  std::thread other(follower, comms[1].get());
  driver(comms[0].get());
  other.join();
}

std::string MessageOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kCorrupt);
    return e.what();
  }
  return "";
}

TEST(RankRecords, InputsArriveAsTheyWere) {
  constexpr EngramDims kDims{2, 3};
  const auto fill = [](StepInputs* in) {
    in->n_rows = 4, in->n_seqs = 2, in->n_samples = 1;
    in->n_groups[1] = 4, in->n_groups[2] = 2, in->all_rows_begin[1] = 4;
    int32_t value = 0;
    bool counts = true;
    ForEachInput(in, kDims, [&](void* data, int64_t bytes) {
      counts = counts && bytes <= 4 * (kMaxRatio + 1);
      for (int64_t i = 0; !counts && i < bytes; ++i)
        static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(++value);
    });
  };
  const auto bytes_of = [](StepInputs* in) {
    std::vector<std::byte> bytes;
    ForEachInput(in, kDims, [&](void* data, int64_t n) {
      bytes.insert(bytes.end(), static_cast<std::byte*>(data), static_cast<std::byte*>(data) + n);
    });
    return bytes;
  };
  const StepBlock sent(8, 2, 5, 6), got(8, 2, 5, 6);
  fill(sent.inputs());
  OnTwo(
      [&](Comm* world) {
        RankRecords records(world, 64);
        for (int i = 0; i < 3; ++i) {
          records.Begin(Kind::kStep);
          ForEachInput(sent.inputs(), kDims, [&](void* p, int64_t n) { records.Put(p, n); });
          records.Send();
        }
        records.Begin(Kind::kStop);
        records.Send();
      },
      [&](Comm* world) {
        RankRecords records(world, 64);
        for (int i = 0; i < 3; ++i) {
          EXPECT_EQ(records.Receive(), Kind::kStep);
          ForEachInput(got.inputs(), kDims, [&](void* p, int64_t n) { records.Take(p, n); });
          records.End();
        }
        EXPECT_EQ(records.Receive(), Kind::kStop);
      });
  EXPECT_TRUE(bytes_of(got.inputs()) == bytes_of(sent.inputs()));
  EXPECT_EQ(got.inputs()->engram_rows[8 * 3 + 11], sent.inputs()->engram_rows[8 * 3 + 11]);
  EXPECT_NE(got.inputs()->engram_rows[8 * 3 + 11], 0);
}

TEST(RankRecords, LostAndDamagedRecordsAreRefused) {
  OnTwo(
      [](Comm* world) {
        RankRecords first(world, 64);
        first.Begin(Kind::kStep);  // never sent
        first.Begin(Kind::kStep);
        first.Send();
        struct {
          uint64_t number;
          Kind kind;
          uint32_t crc;
          int64_t bytes;
          char rest[4096 - 24];
        } record = {1, Kind::kStep, 5, 4, {}};
        world->Broadcast(&record, sizeof record, 0);
      },
      [](Comm* world) {
        RankRecords lost(world, 64), damaged(world, 64);
        EXPECT_EQ(MessageOf([&] { lost.Receive(); }), "rank 1: expected record 1 whole, found 2");
        EXPECT_EQ(MessageOf([&] { damaged.Receive(); }),
                  "rank 1: expected record 1 whole, found 1 with another checksum");
      });
}

TEST(RankRecords, OfAnotherSizeThanIsTakenAreRefused) {
  OnTwo(
      [](Comm* world) {
        RankRecords records(world, 64);
        for (int i = 0; i < 2; ++i) {
          records.Begin(Kind::kStep);
          records.Put("1234", 4);
          records.Send();
        }
      },
      [](Comm* world) {
        RankRecords records(world, 64);
        char text[8];
        records.Receive();
        records.Take(text, 3);
        EXPECT_EQ(std::string(text, 3), "123");
        EXPECT_EQ(MessageOf([&] { records.Take(text, 2); }),
                  "rank 1: record 1: expected 2 bytes more, found 1");
        records.Receive();
        records.Take(text, 3);
        EXPECT_EQ(MessageOf([&] { records.End(); }), "rank 1: record 2: expected 3 bytes, found 4");
      });
}

}  // namespace
}  // namespace deepinfer
