#include "parallel/mpi_session.h"

#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/host_comm.h"
#include "parallel/hosts_comm.h"
#include "parallel/mpi_comm.h"

namespace deepinfer {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kFailureStatus = 2;  // of the program, as after any other error
// How long a rank that leaves waits for the others to tell why, and then for mpirun to pass it on.
constexpr milliseconds kOthersTell(2000), kTextTravels(200);
// How much longer the ranks of a host wait for their leader than leaders do for each other.
constexpr milliseconds kLeadersFirst(1000);

// MPI waits without end for a process that ends, or is stopped, before it has begun.
void Init(std::chrono::seconds deadline) {
  signal(SIGALRM, [](int) {
    constexpr std::string_view kSentence =
        "deepinfer: MPI: expected all ranks to begin, found some missing\n";
    [[maybe_unused]] const auto n = write(STDERR_FILENO, kSentence.data(), kSentence.size());
    _exit(kFailureStatus);
  });
  alarm(static_cast<unsigned>(deadline.count()));
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED)
    throw Error(Code::kIo, "MPI: expected calls from several threads, found none");
  alarm(0);
  signal(SIGALRM, SIG_DFL);  // see DieLater
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

int RankIn(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int SizeOf(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

MPI_Comm CommOfHost(int ranks_per_host) {
  MPI_Comm host = MPI_COMM_NULL;
  const int rank = RankIn(MPI_COMM_WORLD);
  if (ranks_per_host > 0)
    MPI_Comm_split(MPI_COMM_WORLD, rank / ranks_per_host, rank, &host);
  else
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  return host;
}

// What each process of MPI_COMM_WORLD says of itself.
struct Process {
  int mpi_rank, leader;  // of its host
  std::array<char, MPI_MAX_PROCESSOR_NAME> host_name;
};

// Host by host, each in the order of MPI.
std::vector<Process> AllProcesses(MPI_Comm host) {
  Process own{RankIn(MPI_COMM_WORLD), RankIn(MPI_COMM_WORLD), {}};
  int length = 0;
  MPI_Bcast(&own.leader, 1, MPI_INT, 0, host);
  MPI_Get_processor_name(own.host_name.data(), &length);
  std::vector<Process> all(static_cast<size_t>(SizeOf(MPI_COMM_WORLD)));
  MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD);
  std::stable_sort(all.begin(), all.end(),
                   [](const Process& a, const Process& b) { return a.leader < b.leader; });
  return all;
}

// Memory of all ranks of the host. Nothing of it is left behind, however they end.
std::shared_ptr<const Host> ShareMemory(MPI_Comm comm, int first_rank) {
  const int rank = RankIn(comm), size = SizeOf(comm);
  std::array<char, 64> name{};
  if (rank == 0)
    fmt::format_to(name.data(), "/deepinfer.{}.{:x}", getpid(), std::random_device()());
  MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, comm);
  const int64_t bytes = Host::Bytes(size);
  std::shared_ptr<const Host> host;
  if (rank == 0) {
    host = std::make_shared<Host>(SharedMemory::Create(name.data(), bytes), size, first_rank);
    host->MakeWorld("world");
  }
  MPI_Barrier(comm);
  if (rank != 0)
    host = std::make_shared<Host>(SharedMemory::Open(name.data(), bytes), size, first_rank);
  host->Join(rank);
  MPI_Barrier(comm);
  if (rank == 0) SharedMemory::Remove(name.data());
  return host;
}

// mpirun tells all to end when one is gone, and kills them a second later. In that second they say
// who it was. Followers end with their driver.
void DieLater(int) { alarm(1); }

}  // namespace

struct MpiSession::State {
  std::shared_ptr<MpiWorld> shared;
  std::unique_ptr<Comm> world;

  explicit State(const Options& options);
  std::unique_ptr<Comm> Join();
  void WaitForOthers();
  bool OthersLeft() const;
};

MpiSession::State::State(const Options& options) : shared(std::make_shared<MpiWorld>()) {
  MPI_Comm host = CommOfHost(options.ranks_per_host);
  const std::vector<Process> all = AllProcesses(host);
  const int leader_of_own = std::find_if(all.begin(), all.end(), [](const Process& p) {
                              return p.mpi_rank == RankIn(MPI_COMM_WORLD);
                            })->leader;
  int first_rank = 0;
  for (size_t r = 0; r < all.size(); ++r) {
    const int rank = static_cast<int>(r);
    shared->mpi_ranks.push_back(all[r].mpi_rank);
    shared->host_names.emplace_back(all[r].host_name.data());
    if (all[r].leader == all[r].mpi_rank) shared->leaders.push_back(rank);
    if (all[r].mpi_rank == leader_of_own) first_rank = rank;
  }
  shared->rank = first_rank + RankIn(host);
  const std::shared_ptr<const Host> memory = ShareMemory(host, first_rank);
  shared->member = std::make_shared<HostMember>(
      HostMember{memory, RankIn(host), options.deadline,
                 shared->leaders.size() > 1 ? kLeadersFirst : milliseconds(0),
                 memory->CanSpin() ? kSpins : 0});
  MPI_Comm_free(&host);
  world = Join();
}

std::unique_ptr<Comm> MpiSession::State::Join() {
  auto host = std::make_unique<HostComm>(shared->member);
  if (shared->leaders.size() == 1) return host;
  std::vector<std::vector<int>> hosts;
  int own = 0;
  for (const int leader : shared->leaders) {
    if (leader == shared->host().first_rank()) own = static_cast<int>(hosts.size());
    hosts.push_back({});
  }
  for (size_t h = 0; h < hosts.size(); ++h) {
    const int end =
        h + 1 < hosts.size() ? shared->leaders[h + 1] : static_cast<int>(shared->mpi_ranks.size());
    for (int r = shared->leaders[h]; r < end; ++r) hosts[h].push_back(r);
  }
  const Connect connect = [world = shared](const std::vector<int>& ranks, const std::string& name) {
    return std::make_unique<MpiComm>(world, ranks, name);
  };
  return std::make_unique<HostsComm>(std::move(hosts), std::move(host), own, connect, "world");
}

bool MpiSession::State::OthersLeft() const {
  for (int r = 0; r < shared->host().size(); ++r) {
    if (r != shared->member->rank && !shared->host().member(r).left &&
        shared->host().StateOf(r) == Host::State::kAtWork)
      return false;
  }
  return true;
}

void MpiSession::State::WaitForOthers() {
  const Clock::time_point end = Clock::now() + kOthersTell;
  const auto wait_until = [&](const auto& done) {
    while (!done() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  };
  if (shared->leaders.size() > 1 && shared->is_leader()) {
    shared->TellFailure();
    wait_until([&] {
      shared->HearFailure();
      return shared->told_all();
    });
  }
  shared->host().member(shared->member->rank).left = true;
  wait_until([&] { return OthersLeft(); });
  std::this_thread::sleep_for(kTextTravels);
}

MpiSession::MpiSession(const Options& options) {
  Init(options.begin);
  state_ = std::make_unique<State>(options);
  if (state_->world->size() == 1) return;
  if (state_->world->rank() == 0)
    signal(SIGTERM, DieLater);
  else
    signal(SIGTERM, SIG_IGN);
}

Comm* MpiSession::world() const { return state_->world.get(); }

void MpiSession::Fail(const std::string& why) {
  state_->world->Abort(fmt::format("rank {}: {}", state_->world->rank(), why));
}

MpiSession::~MpiSession() {
  if (ended_) return;
  Fail("has ended");  // what was said before stays
  if (state_->world->size() > 1) state_->WaitForOthers();
  MPI_Abort(MPI_COMM_WORLD, kFailureStatus);
}

void MpiSession::End() {
  uint32_t word = 0;
  state_->world->Merge(&word, 1);
  state_->world->ThrowIfFailed();
  ended_ = true;
  MPI_Finalize();
}

}  // namespace deepinfer
