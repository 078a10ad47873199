// MpiComm: the leaders of hosts, which exchange messages (HostsComm).
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm.h"
#include "parallel/host_comm.h"

namespace deepinfer {

// What the communicators of a process share. Ranks are those of the world; mpi_ranks says which
// process of MPI_COMM_WORLD they are.
struct MpiWorld {
  std::shared_ptr<HostMember> member;
  std::vector<int> mpi_ranks;
  std::vector<std::string> host_names;  // by rank
  std::vector<int> leaders;             // of the hosts
  int rank;

  const Host& host() const { return *member->host; }
  bool is_leader() const { return member->rank == 0; }
  // A leader tells the others why its host has failed, once; and hears what they have to tell.
  void TellFailure();
  void HearFailure();
  // All that were told have heard it, and told theirs.
  bool told_all() const;

  std::string told_text;
  std::vector<MPI_Request> told;
  size_t n_heard = 0;
};

// Every call is one message from each rank to each other that needs it, a few hosts being meant.
// So the ones that are missing are those whose message is.
class MpiComm : public Comm {
 public:
  MpiComm(std::shared_ptr<MpiWorld> world, std::vector<int> ranks, std::string name);

  std::unique_ptr<Comm> Split(int, const std::string&) override { return nullptr; }  // by HostsComm
  void SetDeadline(std::chrono::milliseconds deadline) override {
    world_->member->deadline = deadline;
  }
  void Abort(const std::string& why) override { world_->host().Fail(why); }
  std::optional<std::string> failure() const override { return world_->host().failure(); }

 private:
  // In front of every message.
  struct Header {
    int64_t number;  // of the call
    CommCall call;
    int32_t world_rank;
  };
  struct Peer {
    std::vector<std::byte> inbox;
    MPI_Request receive = MPI_REQUEST_NULL, send = MPI_REQUEST_NULL;
  };

  // Opens a call with what this rank sends, `bytes` behind a header.
  std::byte* Outbox(const CommCall& call, int64_t bytes);
  void Expect(int peer, int64_t bytes);
  void SendTo(int peer);
  // Everything expected has come: false after a failure.
  bool Finish(const CommCall& call);
  bool AllDone();
  bool IsDone(int peer, MPI_Request* request) const;
  void ExpectSameCall(const Peer& peer) const;
  void FailLate(const CommCall& call) const;
  const std::byte* Received(int peer) const {
    return peers_[static_cast<size_t>(peer)].inbox.data() + sizeof(Header);
  }

  void DoMerge(const CommCall& call, uint32_t* words, int64_t n) override;
  void DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                std::span<const int64_t> cuts) override;
  void DoBroadcast(const CommCall& call, void* data, int64_t bytes) override;

  const std::shared_ptr<MpiWorld> world_;
  const std::vector<int> ranks_;
  const std::string name_;
  int64_t n_calls_ = 0;
  std::vector<Peer> peers_;
  std::vector<std::byte> outbox_;
};

}  // namespace deepinfer
