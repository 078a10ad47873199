#include "cli/launch.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/topology.h"

namespace deepinfer {
namespace {

constexpr int kMostRanks = 1024;
constexpr int kNoProgram = 127;  // the status of shells

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The child of mpirun that is rank 0, or 0: there is none yet.
pid_t FirstRank(pid_t mpirun) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", mpirun));
  for (pid_t child; children >> child;) {
    const std::string variables = ReadAll(fmt::format("/proc/{}/environ", child));
    constexpr std::string_view kRank0("\0OMPI_COMM_WORLD_RANK=0\0", 24);
    if (variables.find(kRank0) != std::string::npos) return child;
  }
  return 0;
}

// Ctrl-C and a SIGTERM for the whole process group reach mpirun too: it keeps those blocked, its
// ranks do not. Without this process it ends them.
pid_t StartMpirun(std::vector<std::string> command, const sigset_t& blocked) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) {
    throw Error(Code::kIo,
                fmt::format("--ranks: expected a process more, found {}", std::strerror(errno)));
  }
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGHUP);
  if (getppid() != parent) _exit(kNoProgram);
  std::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  execvp(argv[0], argv.data());
  _exit(kNoProgram);
}

}  // namespace

int ParseRanks(const std::string& text) {
  if (text == "auto") return MemoryNodes(AllowedCpus());
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error == std::errc() && end == text.data() + text.size() && n >= 1 && n <= kMostRanks)
    return n;
  throw Error(Code::kInvalid, fmt::format("--ranks: expected auto or an integer from 1 to {}, "
                                          "found \"{}\"",
                                          kMostRanks, text));
}

int MemoryNodes(const std::vector<int>& cpus, const std::string& sysfs) {
  int n = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(sysfs, error)) {
    const std::vector<int> of_node = ParseCpuList(ReadAll(entry.path() / "cpulist"));
    n += std::ranges::any_of(of_node, [&](int cpu) { return std::ranges::count(cpus, cpu) > 0; });
  }
  return std::max(n, 1);
}

std::vector<std::string> PlacementOptions(int ranks, int cores, int nodes) {
  if (ranks > cores)
    return {"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"};
  if (ranks == nodes) return {"--map-by", "ppr:1:numa", "--bind-to", "numa"};
  return {"--map-by", fmt::format("slot:PE={}", cores / ranks), "--bind-to", "core"};
}

int RunOnRanks(int ranks, std::span<char* const> args) {
  const std::vector<int> cpus = AllowedCpus();
  const int cores = DefaultThreads();
  if (ranks > cores) setenv("DEEPINFER_THREADS", "1", 0);  // threads that take turns do not spin
  std::vector<std::string> command = {"mpirun", "-q", "-n", std::to_string(ranks)};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  std::ranges::copy(PlacementOptions(ranks, cores, MemoryNodes(cpus)), std::back_inserter(command));
  command.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  command.insert(command.end(), args.begin() + 1, args.end());

  sigset_t to_rank0, awaited;
  sigemptyset(&to_rank0);
  sigaddset(&to_rank0, SIGTERM), sigaddset(&to_rank0, SIGINT);
  awaited = to_rank0;
  sigaddset(&awaited, SIGCHLD);
  sigprocmask(SIG_BLOCK, &awaited, nullptr);
  std::signal(SIGCHLD, SIG_DFL);  // who started this may have ignored it: then none would come
  const pid_t mpirun = StartMpirun(std::move(command), to_rank0);
  for (;;) {
    int signal = 0, status = 0;
    sigwait(&awaited, &signal);
    if (signal != SIGCHLD) {
      const pid_t rank0 = FirstRank(mpirun);
      kill(rank0 > 0 ? rank0 : mpirun, rank0 > 0 ? signal : SIGHUP);
    } else if (waitpid(mpirun, &status, WNOHANG) == mpirun) {
      if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
      if (WEXITSTATUS(status) != kNoProgram) return WEXITSTATUS(status);
      throw Error(Code::kNotFound, "--ranks: expected mpirun (Open MPI) to start, found none");
    }
  }
}

}  // namespace deepinfer
