#include "parallel/host_comm.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace deepinfer {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long a rank sleeps before it looks after the others.
constexpr milliseconds kPatrol(100);
// Up to so many ranks, each reads what all have written; more share the work of merging.
constexpr int kReadAll = 4;

void Sleep(std::atomic<uint32_t>* word, uint32_t value, milliseconds limit) {
  const timespec time{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, value, &time, nullptr, 0);
}

void WakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

HostComm::HostComm(std::shared_ptr<HostMember> member)
    : Comm(member->rank, member->host->size()),
      member_(std::move(member)),
      board_(host().world()) {}

HostComm::HostComm(std::shared_ptr<HostMember> member, Board* board, int rank)
    : Comm(rank, board->size), member_(std::move(member)), board_(board) {}

// Shows the others where this rank is and what it is about to do.
bool HostComm::Begin(const CommCall& call) {
  if (host().failed()) return false;
  Seat& own = seat(rank());
  own.op = call.op, own.bytes = call.bytes, own.root = call.root;
  own.call.fetch_add(1);
  host().member(member_->rank).board =
      reinterpret_cast<std::byte*>(board_) - reinterpret_cast<std::byte*>(host().board(0));
  return true;
}

bool HostComm::Meet(const CommCall& call) {
  if (host().failed()) return false;
  Board& b = *board_;
  const uint32_t seen = b.gate.load(std::memory_order_acquire);
  seat(rank()).meetings.store(seen + 1, std::memory_order_release);
  if (b.n_here.fetch_add(1, std::memory_order_acq_rel) < size() - 1) {
    const Clock::time_point begin = Clock::now();
    const bool all_came = Wait(call, seen);
    AddWait(Clock::now() - begin);
    return all_came;
  }
  b.n_here.store(0, std::memory_order_relaxed);
  ExpectSameCalls();
  b.gate.store(seen + 1, std::memory_order_seq_cst);
  if (b.sleepers.load(std::memory_order_seq_cst) > 0) WakeAll(&b.gate);
  return true;
}

// Sleeps count as short ones: who was stopped itself does not blame the others.
bool HostComm::Wait(const CommCall& call, uint32_t seen) {
  Board& b = *board_;
  const auto open = [&] { return b.gate.load(std::memory_order_seq_cst) != seen; };
  for (int i = 0; i < member_->spins; ++i) {
    if (open()) return true;
    _mm_pause();
  }
  const milliseconds nap = std::clamp(member_->patience() / 4, milliseconds(1), kPatrol);
  Clock::duration waited{0}, all_here{0};
  for (Clock::time_point before = Clock::now();;) {
    b.sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (!open()) Sleep(&b.gate, seen, nap);
    b.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (open()) return true;
    if (host().failed()) return false;
    const Clock::time_point now = Clock::now();
    const Clock::duration slept =
        std::min<Clock::duration>(now - std::exchange(before, now), 2 * nap);
    waited += slept;
    all_here = ExpectOthers(call, waited) ? all_here + slept : Clock::duration(0);
    if (all_here >= member_->patience()) FailMissing(call, "the last one, lost at the gate");
  }
}

// The last to come sees what all have called.
void HostComm::ExpectSameCalls() const {
  const CommCall first = seat(0).shown();
  for (int r = 1; r < size(); ++r) {
    const CommCall other = seat(r).shown();
    if (other == first) continue;
    const int ranks[] = {seat(r).member + host().first_rank(),
                         seat(0).member + host().first_rank()};
    host().Fail(fmt::format("call {} of {}: rank {} calls {} with {} bytes, rank {} {} with {}",
                            seat(r).call.load(), board_->name.data(), ranks[0], other.name(),
                            other.bytes, ranks[1], first.name(), first.bytes));
    return;
  }
}

// Fails when someone who has not come to the meeting will not: in time, or, where this rank has
// patience, because a process is gone or was stopped for that long. True: all have come.
bool HostComm::ExpectOthers(const CommCall& call, Clock::duration waited) const {
  const bool late = waited >= member_->patience(), patient = call.root >= 0 && call.root != rank();
  std::string missing;
  bool fails = late && !patient;
  for (int r = 0; r < size(); ++r) {
    if (seat(r).meetings.load() == seat(rank()).meetings.load()) continue;
    const Host::State state = host().StateOf(seat(r).member);
    fails = fails || state == Host::State::kGone || (late && state == Host::State::kStopped);
    missing += (missing.empty() ? "" : ", ") + Describe(r, state);
  }
  if (fails && !missing.empty()) FailMissing(call, missing);
  return missing.empty();
}

void HostComm::FailMissing(const CommCall& call, const std::string& missing) const {
  host().Fail(
      fmt::format("call {} of {} ({}, {} bytes): expected {} ranks within {} ms, missing {}",
                  seat(rank()).call.load(), board_->name.data(), call.name(), call.bytes, size(),
                  member_->patience().count(), missing));
}

// A rank that is missing, and what is known of it.
std::string HostComm::Describe(int rank, Host::State state) const {
  const int member = seat(rank).member;
  const int64_t last = host().member(member).board;
  std::string text = fmt::format("{}", member + host().first_rank());
  if (state == Host::State::kGone) text += " (its process is gone)";
  if (state == Host::State::kStopped) text += " (stopped)";
  if (state == Host::State::kAtWork && last != 0 && host().board(last) != board_)
    text += fmt::format(" (last seen in {})", host().board(last)->name.data());
  return text;
}

void HostComm::DoMerge(const CommCall& call, uint32_t* words, int64_t n) {
  if (size() == 1 || !Begin(call)) return;
  const int64_t chunk = board_->chunk_bytes / 4;
  for (int64_t first = 0; first < n || first == 0; first += chunk) {
    if (!MergeChunk(call, words + first, std::min(n - first, chunk))) return;
  }
}

bool HostComm::MergeChunk(const CommCall& call, uint32_t* words, int64_t n) {
  half_ ^= 1;
  Copy(part(rank()), words, n * 4);
  if (!Meet(call)) return false;
  const auto join = [&](int64_t begin, int64_t end) {
    Copy(words + begin, part(0) + begin * 4, (end - begin) * 4);
    for (int r = 1; r < size(); ++r)
      JoinWords(call.op, words + begin, part(r) + begin * 4, end - begin);
  };
  if (size() <= kReadAll) {
    join(0, n);
    return true;
  }
  const int64_t begin = n * rank() / size(), end = n * (rank() + 1) / size();
  std::byte* merged = part(size());
  join(begin, end);
  Copy(merged + begin * 4, words + begin, (end - begin) * 4);
  if (!Meet(call)) return false;
  Copy(words, merged, n * 4);
  return true;
}

void HostComm::DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                        std::span<const int64_t> cuts) {
  if (size() == 1 || !Begin(call)) return;
  const auto columns = [&](int r) {
    const auto p = static_cast<size_t>(r);
    return ColumnWords{rows, n_rows, stride, cuts[p], cuts[p + 1]};
  };
  int64_t most = 0;
  for (int r = 0; r < size(); ++r) most = std::max(most, columns(r).size());
  const int64_t chunk = board_->chunk_bytes / 4;
  for (int64_t first = 0; first < most || first == 0; first += chunk) {
    half_ ^= 1;
    const auto each_run = [&](int r, const auto& copy) {
      columns(r).ForEachRun(first, std::clamp<int64_t>(columns(r).size() - first, 0, chunk), copy);
    };
    each_run(rank(), [&](const float* words, int64_t at, int64_t n) {
      Copy(part(rank()) + at * 4, words, n * 4);
    });
    if (!Meet(call)) return;
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      each_run(r,
               [&](float* words, int64_t at, int64_t n) { Copy(words, part(r) + at * 4, n * 4); });
    }
  }
}

void HostComm::DoBroadcast(const CommCall& call, void* data, int64_t bytes) {
  if (size() == 1 || !Begin(call)) return;
  auto* at = static_cast<std::byte*>(data);
  const int64_t room = board_->chunk_bytes;
  for (int64_t first = 0; first < bytes || first == 0; first += room) {
    half_ ^= 1;
    const int64_t n = std::min(bytes - first, room);
    if (rank() == call.root) Copy(part(rank()), at + first, n);
    if (!Meet(call)) return;
    if (rank() != call.root) Copy(at + first, part(call.root), n);
  }
}

std::unique_ptr<Comm> HostComm::Split(int color, const std::string& name) {
  const CommCall call{CommCall::Op::kSplit};
  if (!Begin(call)) return nullptr;
  seat(rank()).color = color;
  if (!Meet(call)) return nullptr;
  int first = -1, before = 0, all = 0;  // of this color
  for (int r = 0; r < size(); ++r) {
    if (seat(r).color != color) continue;
    if (first < 0) first = r;
    ++all;
    if (r < rank()) ++before;
  }
  if (first == rank()) {
    const int64_t made = host().MakeBoard(fmt::format("{} {}", name, color), all);
    if (made < 0) host().Fail(fmt::format("{} {}: expected room for it, found none", name, color));
    seat(rank()).made = made;
  }
  if (!Meet(call)) return nullptr;
  Board* made = host().board(seat(first).made);
  made->seats()[before].member = member_->rank;
  if (!Meet(call)) return nullptr;
  return std::unique_ptr<Comm>(new HostComm(member_, made, before));
}

}  // namespace deepinfer
