#include "parallel/host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "base/topology.h"

namespace deepinfer {

namespace {

// Times that all ranks may be split: those of a batch, those that share the heads, those of an
// output group, and once more.
constexpr int kSplits = 4;

// Chunks of a few ranks stay in their caches, those of many take no more memory.
int64_t ChunkBytes(int ranks) {
  constexpr int64_t kMost = 128 << 10, kAll = 2 << 20;
  return std::min(kMost, kAll / ranks / 4096 * 4096 + 4096);
}

}  // namespace

struct alignas(64) Host::Header {
  enum : uint32_t { kFine, kFailing, kFailed };
  std::atomic<uint32_t> state;
  std::array<char, 1016> failure;
  std::atomic<int64_t> used;  // bytes taken by boards
  std::atomic<int64_t> world;

  Member* members() { return reinterpret_cast<Member*>(this + 1); }
};

// The ranks that share a color are at most all, and boards of few ranks take the most per rank.
int64_t Host::Bytes(int ranks) {
  const int64_t chunk = ChunkBytes(ranks),
                parts = (ranks + 1) / 2 * Board::Bytes(2, chunk) + ranks * Board::Bytes(1, chunk);
  return static_cast<int64_t>(sizeof(Header)) + ranks * static_cast<int64_t>(sizeof(Member)) +
         Board::Bytes(ranks, chunk) + kSplits * parts;
}

Host::Host(SharedMemory memory, int ranks, int first_rank)
    : memory_(std::move(memory)), ranks_(ranks), first_rank_(first_rank) {}

Host::Header* Host::header() const { return reinterpret_cast<Header*>(memory_.base()); }

Member& Host::member(int rank) const { return header()->members()[rank]; }

void Host::Join(int rank) const {
  sched_getaffinity(0, sizeof(cpu_set_t), &member(rank).cpus);
  member(rank).process = getpid();
}

bool Host::CanSpin() const {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int r = 0; r < ranks_; ++r) CPU_OR(&all, &all, &member(r).cpus);
  const int quota = CpuQuota();
  return ranks_ <= CPU_COUNT(&all) && (quota == 0 || ranks_ <= quota);
}

int64_t Host::MakeBoard(const std::string& name, int size) const {
  const int64_t first = static_cast<int64_t>(sizeof(Header)) +
                        ranks_ * static_cast<int64_t>(sizeof(Member)),
                chunk = ChunkBytes(ranks_), bytes = Board::Bytes(size, chunk);
  const int64_t offset = first + header()->used.fetch_add(bytes);
  if (offset + bytes > memory_.bytes()) return -1;
  Board* made = board(offset);
  name.copy(made->name.data(), made->name.size() - 1);
  made->size = size;
  made->chunk_bytes = chunk;
  return offset;
}

Board* Host::board(int64_t offset) const {
  return reinterpret_cast<Board*>(memory_.base() + offset);
}

void Host::MakeWorld(const std::string& name) const {
  const int64_t made = MakeBoard(name, ranks_);
  for (int r = 0; r < ranks_; ++r) board(made)->seats()[r].member = r;
  header()->world = made;
}

Board* Host::world() const { return board(header()->world); }

void Host::Fail(const std::string& why) const {
  Header& h = *header();
  uint32_t seen = Header::kFine;
  if (!h.state.compare_exchange_strong(seen, Header::kFailing)) {
    // Whoever was first may have been killed while it wrote.
    for (int i = 0; i < 100 && !failed(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (failed()) return;
  }
  h.failure[why.copy(h.failure.data(), h.failure.size() - 1)] = '\0';
  h.state.store(Header::kFailed, std::memory_order_release);
}

bool Host::failed() const {
  return header()->state.load(std::memory_order_acquire) == Header::kFailed;
}

std::optional<std::string> Host::failure() const {
  if (!failed()) return std::nullopt;
  return header()->failure.data();
}

// The third field of the process's line; the second, its name, is in brackets.
Host::State Host::StateOf(int rank) const {
  const int32_t process = member(rank).process;
  if (process == 0) return State::kAtWork;
  std::FILE* file = std::fopen(fmt::format("/proc/{}/stat", process).c_str(), "r");
  if (file == nullptr) return State::kGone;
  std::array<char, 256> text{};
  const size_t n = std::fread(text.data(), 1, text.size() - 1, file);
  std::fclose(file);
  const char* end = std::strrchr(text.data(), ')');
  if (n == 0 || end == nullptr || std::strlen(end) < 3) return State::kGone;
  if (end[2] == 'Z' || end[2] == 'X') return State::kGone;
  return end[2] == 'T' || end[2] == 't' ? State::kStopped : State::kAtWork;
}

}  // namespace deepinfer
