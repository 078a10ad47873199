// HostComm: a communicator of ranks on one host, threads or processes.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "parallel/comm.h"
#include "parallel/host.h"

namespace deepinfer {

// A rank of a host: what its communicators share.
struct HostMember {
  std::shared_ptr<const Host> host;
  int rank;
  std::chrono::milliseconds deadline;  // between hosts; within one it is later by `grace`, so that
  std::chrono::milliseconds grace;     // those who miss a host are the first to say so
  int spins;

  std::chrono::milliseconds patience() const { return deadline + grace; }
};

// Spins of a rank that has a CPU of its own, some milliseconds: longer than others are late within
// a step and than a driver takes between two steps.
inline constexpr int kSpins = 40'000;

// A call: every rank writes what it has to a part of the scratch memory that is its own, all meet,
// and every rank reads. Halves of the memory take turns: who writes to one knows, from the meeting
// in between, that nobody reads it any more. What is larger than a part takes several meetings.
class HostComm : public Comm {
 public:
  // All ranks of the host.
  explicit HostComm(std::shared_ptr<HostMember> member);

  std::unique_ptr<Comm> Split(int color, const std::string& name) override;
  void SetDeadline(std::chrono::milliseconds deadline) override { member_->deadline = deadline; }
  void Abort(const std::string& why) override { host().Fail(why); }
  std::optional<std::string> failure() const override { return host().failure(); }

 private:
  HostComm(std::shared_ptr<HostMember> member, Board* board, int rank);

  const Host& host() const { return *member_->host; }
  Seat& seat(int rank) const { return board_->seats()[rank]; }
  std::byte* part(int rank) const { return board_->half(half_) + rank * board_->chunk_bytes; }

  // Both are false when the world has failed, Meet only when that was before all had come.
  bool Begin(const CommCall& call);
  bool Meet(const CommCall& call);
  bool Wait(const CommCall& call, uint32_t seen);
  void ExpectSameCalls() const;
  bool ExpectOthers(const CommCall& call, std::chrono::steady_clock::duration waited) const;
  void FailMissing(const CommCall& call, const std::string& missing) const;
  std::string Describe(int rank, Host::State state) const;

  void DoMerge(const CommCall& call, uint32_t* words, int64_t n) override;
  bool MergeChunk(const CommCall& call, uint32_t* words, int64_t n);
  void DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                std::span<const int64_t> cuts) override;
  void DoBroadcast(const CommCall& call, void* data, int64_t bytes) override;

  const std::shared_ptr<HostMember> member_;
  Board* const board_;
  int64_t half_ = 0;
};

}  // namespace deepinfer
