// HostsComm: a communicator of ranks on several hosts. The ranks of a host meet in its memory; the
// first of them, the leader, speaks for them with those of the other hosts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm.h"

namespace deepinfer {

// A communicator of these ranks of the world, made by each of them alone.
using Connect =
    std::function<std::unique_ptr<Comm>(const std::vector<int>& ranks, const std::string& name)>;

class HostsComm : public Comm {
 public:
  // hosts: the world's ranks of every host, ascending. host: its communicator of this host.
  HostsComm(std::vector<std::vector<int>> hosts, std::unique_ptr<Comm> host, int own_host,
            Connect connect, const std::string& name);

  std::unique_ptr<Comm> Split(int color, const std::string& name) override;
  void SetDeadline(std::chrono::milliseconds deadline) override { host_->SetDeadline(deadline); }
  void Abort(const std::string& why) override { host_->Abort(why); }
  std::optional<std::string> failure() const override { return host_->failure(); }

 private:
  void DoMerge(const CommCall& call, uint32_t* words, int64_t n) override;
  void DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                std::span<const int64_t> cuts) override;
  void DoBroadcast(const CommCall& call, void* data, int64_t bytes) override;
  // All of this host get what the leader holds.
  void TellHost(float* rows, int64_t n_rows, int64_t stride, int64_t begin, int64_t end);
  // Counts what the calls of host_ waited as waits of this one.
  void TakeWaits();

  const std::vector<std::vector<int>> hosts_;
  const int own_;
  std::vector<int> begins_;  // first rank of every host in this communicator, and their number
  const std::unique_ptr<Comm> host_;
  const Connect connect_;
  std::unique_ptr<Comm> leaders_;  // of the leader
  std::vector<int64_t> cuts_;
};

}  // namespace deepinfer
