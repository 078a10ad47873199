// Host: the ranks of a world on one host, threads or processes, and the memory in which they meet
// (docs/ranks.md).
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "parallel/comm.h"
#include "parallel/shared_memory.h"

namespace deepinfer {

// Everything below lies in shared memory and begins as zeros. What a rank shows to the others is
// atomic, because a rank that has given up a call no longer waits for those who read it.

// A rank at the board of one communicator.
struct alignas(64) Seat {
  std::atomic<int32_t> member;     // of the host
  std::atomic<uint32_t> meetings;  // that it has come to
  std::atomic<int64_t> call, bytes;
  std::atomic<CommCall::Op> op;
  std::atomic<int32_t> root;
  std::atomic<int32_t> color;  // by Split
  std::atomic<int64_t> made;   // by Split: where the board of its color is

  CommCall shown() const { return {op.load(), bytes.load(), root.load()}; }
};

// Where the ranks of one communicator meet; seats and two halves of scratch lie behind it.
struct alignas(64) Board {
  static constexpr int kNameBytes = 48;
  std::array<char, kNameBytes> name;
  int32_t size;
  int64_t chunk_bytes;  // what a rank writes at a time
  alignas(64) std::atomic<int32_t> n_here;
  alignas(64) std::atomic<uint32_t> gate;  // meetings that have ended
  std::atomic<int32_t> sleepers;

  // A part for each rank, and one for what they made of them.
  static int64_t HalfBytes(int size, int64_t chunk) { return size > 1 ? (size + 1) * chunk : 0; }
  static int64_t Bytes(int size, int64_t chunk) {
    return static_cast<int64_t>(sizeof(Board)) + size * static_cast<int64_t>(sizeof(Seat)) +
           2 * HalfBytes(size, chunk);
  }

  Seat* seats() { return reinterpret_cast<Seat*>(this + 1); }
  std::byte* half(int64_t which) {
    return reinterpret_cast<std::byte*>(seats() + size) + which * HalfBytes(size, chunk_bytes);
  }
};

// A rank of the host.
struct alignas(64) Member {
  std::atomic<int32_t> process;  // 0: a thread
  std::atomic<bool> left;        // because of a failure, which it has told
  std::atomic<int64_t> board;    // the last one that it came to
  cpu_set_t cpus;
};

class Host {
 public:
  static int64_t Bytes(int ranks);

  // memory: Bytes(ranks), zeros for the first to come. first_rank: number of rank 0 of the host in
  // the world, in sentences.
  Host(SharedMemory memory, int ranks, int first_rank);

  int size() const { return ranks_; }
  int first_rank() const { return first_rank_; }
  Member& member(int rank) const;
  // A process takes its place.
  void Join(int rank) const;
  // Waits may spin: every rank of the host has a CPU. After all have joined.
  bool CanSpin() const;

  // Offset of a new board for `size` ranks; -1: no room is left. The one for all is made by all:
  // world().
  int64_t MakeBoard(const std::string& name, int size) const;
  Board* board(int64_t offset) const;
  // For all ranks of the host; rank 0 makes it, before the others use it.
  void MakeWorld(const std::string& name) const;
  Board* world() const;

  // The first sentence stays.
  void Fail(const std::string& why) const;
  bool failed() const;
  std::optional<std::string> failure() const;

  enum class State { kAtWork, kStopped, kGone };
  State StateOf(int rank) const;

 private:
  struct Header;
  Header* header() const;

  const SharedMemory memory_;
  const int ranks_, first_rank_;
};

}  // namespace deepinfer
