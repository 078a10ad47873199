#include "parallel/thread_comm.h"

#include <utility>

#include "base/topology.h"
#include "parallel/host_comm.h"

namespace deepinfer {

std::vector<std::unique_ptr<Comm>> MakeThreadWorld(int ranks, std::chrono::milliseconds deadline) {
  const auto host = std::make_shared<Host>(SharedMemory(Host::Bytes(ranks)), ranks, 0);
  host->MakeWorld("world");
  const int spins = std::cmp_less_equal(ranks, AllowedCpus().size()) ? kSpins : 0;
  std::vector<std::unique_ptr<Comm>> comms;
  for (int r = 0; r < ranks; ++r) {
    comms.push_back(std::make_unique<HostComm>(
        std::make_shared<HostMember>(HostMember{host, r, deadline, {}, spins})));
  }
  return comms;
}

}  // namespace deepinfer
