#include "parallel/mpi_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

namespace deepinfer {

namespace {

using Clock = std::chrono::steady_clock;

// One tag is enough: two ranks make the calls that they share in the same order.
constexpr int kCallTag = 1, kFailureTag = 2;

int OwnIndex(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

void MpiWorld::TellFailure() {
  if (!is_leader() || !told.empty()) return;
  told_text = host().failure().value_or("");
  for (const int leader : leaders) {
    if (leader == rank) continue;
    told.emplace_back();
    MPI_Isend(told_text.data(), static_cast<int>(told_text.size()), MPI_CHAR,
              mpi_ranks[static_cast<size_t>(leader)], kFailureTag, MPI_COMM_WORLD, &told.back());
  }
}

void MpiWorld::HearFailure() {
  if (!is_leader()) return;
  for (;;) {
    int found = 0, bytes = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kFailureTag, MPI_COMM_WORLD, &found, &status) != MPI_SUCCESS ||
        !found)
      return;
    MPI_Get_count(&status, MPI_CHAR, &bytes);
    std::string text(static_cast<size_t>(bytes), ' ');
    MPI_Recv(text.data(), bytes, MPI_CHAR, status.MPI_SOURCE, kFailureTag, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    ++n_heard;
    host().Fail(text);
  }
}

bool MpiWorld::told_all() const { return n_heard + 1 >= leaders.size(); }

MpiComm::MpiComm(std::shared_ptr<MpiWorld> world, std::vector<int> ranks, std::string name)
    : Comm(OwnIndex(ranks, world->rank), static_cast<int>(ranks.size())),
      world_(std::move(world)),
      ranks_(std::move(ranks)),
      name_(std::move(name)),
      peers_(ranks_.size()) {}

std::byte* MpiComm::Outbox(const CommCall& call, int64_t bytes) {
  outbox_.resize(sizeof(Header) + static_cast<size_t>(bytes));
  const Header header{++n_calls_, call, world_->rank};
  std::memcpy(outbox_.data(), &header, sizeof header);
  return outbox_.data() + sizeof header;
}

void MpiComm::Expect(int peer, int64_t bytes) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  p.inbox.resize(sizeof(Header) + static_cast<size_t>(bytes));
  MPI_Irecv(p.inbox.data(), static_cast<int>(p.inbox.size()), MPI_BYTE,
            world_->mpi_ranks[static_cast<size_t>(ranks_[static_cast<size_t>(peer)])], kCallTag,
            MPI_COMM_WORLD, &p.receive);
}

void MpiComm::SendTo(int peer) {
  MPI_Isend(outbox_.data(), static_cast<int>(outbox_.size()), MPI_BYTE,
            world_->mpi_ranks[static_cast<size_t>(ranks_[static_cast<size_t>(peer)])], kCallTag,
            MPI_COMM_WORLD, &peers_[static_cast<size_t>(peer)].send);
}

// A request that has ended becomes MPI_REQUEST_NULL.
bool MpiComm::IsDone(int peer, MPI_Request* request) const {
  if (*request == MPI_REQUEST_NULL) return true;
  int done = 0;
  const int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS) return done;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  world_->host().Fail(
      fmt::format("call {} of {} between hosts: expected a message of rank {}, found {}", n_calls_,
                  name_, ranks_[static_cast<size_t>(peer)], text.data()));
  return false;
}

bool MpiComm::AllDone() {
  bool all = true;
  for (int p = 0; p < size(); ++p) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    const bool expected = peer.receive != MPI_REQUEST_NULL, received = IsDone(p, &peer.receive);
    if (expected && received) ExpectSameCall(peer);
    all = IsDone(p, &peer.send) && received && all;
  }
  return all;
}

void MpiComm::ExpectSameCall(const Peer& peer) const {
  Header own, other;
  std::memcpy(&own, outbox_.data(), sizeof own);
  std::memcpy(&other, peer.inbox.data(), sizeof other);
  if (own.number == other.number && own.call == other.call) return;
  world_->host().Fail(
      fmt::format("call {} of {}: rank {} calls {} with {} bytes, rank {} (call {}) {} with {}",
                  own.number, name_, own.world_rank, own.call.name(), own.call.bytes,
                  other.world_rank, other.number, other.call.name(), other.call.bytes));
}

void MpiComm::FailLate(const CommCall& call) const {
  std::string missing;
  for (size_t p = 0; p < peers_.size(); ++p) {
    if (peers_[p].receive == MPI_REQUEST_NULL && peers_[p].send == MPI_REQUEST_NULL) continue;
    missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", ranks_[p],
                           world_->host_names[static_cast<size_t>(ranks_[p])]);
  }
  world_->host().Fail(fmt::format(
      "call {} of {} between hosts ({}, {} bytes): expected {} leaders within {} ms, missing {}",
      n_calls_, name_, call.name(), call.bytes, size(), world_->member->deadline.count(), missing));
}

// Polls without a pause while the others are likely to be at work on the same call, then leaves the
// core to them.
bool MpiComm::Finish(const CommCall& call) {
  constexpr int kEager = 2000;
  const bool patient = call.root >= 0 && call.root != rank();
  const Clock::time_point begin = Clock::now();
  for (int i = 0;; ++i) {
    if (AllDone()) return !world_->host().failed();
    if (i < kEager) continue;
    world_->HearFailure();
    if (world_->host().failed()) {
      world_->TellFailure();
      return false;
    }
    const Clock::duration waited = Clock::now() - begin;
    if (!patient && waited > world_->member->deadline) FailLate(call);
    if (waited < std::chrono::milliseconds(20))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void MpiComm::DoMerge(const CommCall& call, uint32_t* words, int64_t n) {
  if (world_->host().failed()) return world_->TellFailure();
  std::memcpy(Outbox(call, n * 4), words, static_cast<size_t>(n) * 4);
  for (int p = 0; p < size(); ++p) {
    if (p != rank()) Expect(p, n * 4), SendTo(p);
  }
  if (!Finish(call)) return;
  for (int p = 0; p < size(); ++p) {
    const std::byte* from = p == rank() ? outbox_.data() + sizeof(Header) : Received(p);
    if (p == 0)
      std::memcpy(words, from, static_cast<size_t>(n) * 4);
    else
      JoinWords(call.op, words, from, n);
  }
}

void MpiComm::DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                       std::span<const int64_t> cuts) {
  if (world_->host().failed()) return world_->TellFailure();
  const auto columns = [&](int r) {
    const auto p = static_cast<size_t>(r);
    return ColumnWords{rows, n_rows, stride, cuts[p], cuts[p + 1]};
  };
  std::byte* own = Outbox(call, columns(rank()).size() * 4);
  columns(rank()).ForEachRun(0, columns(rank()).size(), [&](float* words, int64_t at, int64_t n) {
    std::memcpy(own + at * 4, words, static_cast<size_t>(n) * 4);
  });
  for (int p = 0; p < size(); ++p) {
    if (p != rank()) Expect(p, columns(p).size() * 4), SendTo(p);
  }
  if (!Finish(call)) return;
  for (int p = 0; p < size(); ++p) {
    if (p == rank()) continue;
    columns(p).ForEachRun(0, columns(p).size(), [&](float* words, int64_t at, int64_t n) {
      std::memcpy(words, Received(p) + at * 4, static_cast<size_t>(n) * 4);
    });
  }
}

void MpiComm::DoBroadcast(const CommCall& call, void* data, int64_t bytes) {
  if (world_->host().failed()) return world_->TellFailure();
  const bool is_root = rank() == call.root;
  std::byte* own = Outbox(call, is_root ? bytes : 0);
  if (is_root && bytes > 0) std::memcpy(own, data, static_cast<size_t>(bytes));
  if (!is_root) Expect(call.root, bytes);
  for (int p = 0; p < size() && is_root; ++p) {
    if (p != rank()) SendTo(p);
  }
  if (Finish(call) && !is_root && bytes > 0)
    std::memcpy(data, Received(call.root), static_cast<size_t>(bytes));
}

}  // namespace deepinfer
