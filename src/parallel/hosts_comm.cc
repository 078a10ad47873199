#include "parallel/hosts_comm.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace deepinfer {

namespace {

int CountRanks(const std::vector<std::vector<int>>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int n, const auto& ranks) {
    return n + static_cast<int>(ranks.size());
  });
}

int FirstOf(const std::vector<std::vector<int>>& hosts, int host) {
  return CountRanks({hosts.begin(), hosts.begin() + host});
}

}  // namespace

HostsComm::HostsComm(std::vector<std::vector<int>> hosts, std::unique_ptr<Comm> host, int own_host,
                     Connect connect, const std::string& name)
    : Comm(FirstOf(hosts, own_host) + host->rank(), CountRanks(hosts)),
      hosts_(std::move(hosts)),
      own_(own_host),
      host_(std::move(host)),
      connect_(std::move(connect)) {
  std::vector<int> leaders;
  for (const std::vector<int>& ranks : hosts_) {
    begins_.push_back(FirstOf(hosts_, static_cast<int>(leaders.size())));
    leaders.push_back(ranks.front());
  }
  begins_.push_back(size());
  if (host_->rank() == 0) leaders_ = connect_(leaders, name);
}

void HostsComm::TellHost(float* rows, int64_t n_rows, int64_t stride, int64_t begin, int64_t end) {
  cuts_.assign(static_cast<size_t>(host_->size()) + 1, end);
  cuts_[0] = begin;
  host_->Gather(rows, n_rows, stride, cuts_);
}

void HostsComm::TakeWaits() {
  AddWait(std::chrono::nanoseconds(host_->TakeStats().wait_nanoseconds));
}

void HostsComm::DoMerge(const CommCall& call, uint32_t* words, int64_t n) {
  const auto join = [&](Comm& comm) {
    if (call.op == CommCall::Op::kMerge)
      comm.Merge(words, n);
    else
      comm.Sum(reinterpret_cast<float*>(words), n);
  };
  join(*host_);
  if (leaders_) join(*leaders_);
  TellHost(reinterpret_cast<float*>(words), 1, n, 0, n);
  TakeWaits();
}

void HostsComm::DoGather(const CommCall&, float* rows, int64_t n_rows, int64_t stride,
                         std::span<const int64_t> cuts) {
  const auto begin = static_cast<size_t>(begins_[static_cast<size_t>(own_)]);
  host_->Gather(rows, n_rows, stride, cuts.subspan(begin, static_cast<size_t>(host_->size()) + 1));
  if (leaders_) {
    cuts_.clear();
    for (const int first : begins_) cuts_.push_back(cuts[static_cast<size_t>(first)]);
    leaders_->Gather(rows, n_rows, stride, cuts_);
  }
  TellHost(rows, n_rows, stride, cuts.front(), cuts.back());
  TakeWaits();
}

void HostsComm::DoBroadcast(const CommCall& call, void* data, int64_t bytes) {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), call.root);
  const int root_host = static_cast<int>(after - begins_.begin()) - 1;
  if (root_host == own_) host_->Broadcast(data, bytes, call.root - *(after - 1));
  if (leaders_) leaders_->Broadcast(data, bytes, root_host);
  if (root_host != own_) host_->Broadcast(data, bytes, 0);
  TakeWaits();
}

std::unique_ptr<Comm> HostsComm::Split(int color, const std::string& name) {
  std::vector<float> colors(static_cast<size_t>(size()));
  std::vector<int64_t> cuts(colors.size() + 1);
  std::iota(cuts.begin(), cuts.end(), 0);
  colors[static_cast<size_t>(rank())] = static_cast<float>(color);
  Gather(colors.data(), 1, size(), cuts);
  std::unique_ptr<Comm> host = host_->Split(color, name);
  if (host == nullptr) return nullptr;
  std::vector<std::vector<int>> hosts;
  int own = 0;
  for (size_t h = 0; h < hosts_.size(); ++h) {
    std::vector<int> same;
    for (size_t r = 0; r < hosts_[h].size(); ++r) {
      if (colors[static_cast<size_t>(begins_[h]) + r] == static_cast<float>(color))
        same.push_back(hosts_[h][r]);
    }
    if (static_cast<int>(h) == own_) own = static_cast<int>(hosts.size());
    if (!same.empty()) hosts.push_back(std::move(same));
  }
  if (hosts.size() == 1) return host;
  return std::make_unique<HostsComm>(std::move(hosts), std::move(host), own, connect_,
                                     name + " " + std::to_string(color));
}

}  // namespace deepinfer
