#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "config/options.h"
#include "engine/rank_load.h"
#include "parallel/mpi_session.h"

namespace deepinfer {
namespace {

constexpr int kFailure = 2;

// Names out of files may hold anything: one line, and nothing a terminal would obey. Never throws,
// also when standard error takes nothing.
int Fail(std::string sentence) {
  for (char& c : sentence) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = c == '\n' ? ' ' : '?';
  }
  std::fputs(("deepinfer: " + sentence + "\n").c_str(), stderr);
  return kFailure;
}

// A closed descriptor 0, 1 or 2 would be given to the next file opened. Returns false when standard
// output is closed.
bool HoldStandardDescriptors() {
  const bool has_output = fcntl(1, F_GETFD) >= 0;
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) < 0)
      return false;
  }
  return has_output;
}

void PrintAll(const std::string& text) {
  Output out;
  out.Write(text);
  out.Flush();
}

// Until the options are known, see --rank-timeout.
constexpr std::chrono::seconds kRankDeadline(600);

// Others would do the same work on one rank while the rest wait.
void ExpectRanksCommand(const Comm* world, const std::vector<std::string>& args) {
  if (world == nullptr || world->size() == 1 || args.empty()) return;
  const bool is_bench = args[0] == "bench" && args.size() > 1;
  const std::string command = is_bench ? "bench " + args[1] : args[0];
  constexpr std::string_view kKnown[] = {
      "generate",   "chat",          "serve",        "verify",
      "bench step", "bench latency", "bench drafts", "bench throughput"};
  if (command.starts_with("-") || std::ranges::find(kKnown, command) != std::end(kKnown)) return;
  throw Error(Code::kUnsupported,
              fmt::format("mpirun: expected a sub-command that loads a model on {} ranks, found "
                          "\"{}\"",
                          world->size(), command));
}

// Rank 0, or the only one. Returns the exit status of the command.
int RunCommand(int argc, char** argv, Comm* world) {
  CLI::App app("Inference for DeepSeek-V4.1-Flash", "deepinfer");
  app.set_version_flag("--version", "deepinfer " DI_VERSION);
  AddInspect(app);
  AddGenerate(app, world);
  AddChat(app, world);
  AddServe(app, world);
  AddVerify(app, world);
  AddTokenize(app);
  AddDetokenize(app);
  AddRender(app);
  AddParse(app);
  AddPlan(app);
  AddBench(app, world);
  try {
    std::vector<std::string> args = NormalizeArguments(app, {argv + 1, argv + argc});
    ExpectRanksCommand(world, args);
    std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
    app.parse(std::move(args));
    if (app.get_subcommands().empty())
      throw Error(Code::kInvalid, "expected a sub-command, found none (see --help)");
  } catch (const CLI::CallForHelp&) {
    PrintAll(app.help());
  } catch (const CLI::CallForAllHelp&) {
    PrintAll(app.help("", CLI::AppFormatMode::All));
  } catch (const CLI::CallForVersion& version) {
    PrintAll(std::string(version.what()) + "\n");
  } catch (const RanksWanted& wanted) {
    return RunOnRanks(wanted.ranks, {argv, static_cast<size_t>(argc)});
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    throw Error(Code::kInvalid, fmt::format("{} (see --help)", e.what()));
  }
  return 0;
}

// Rank 0 runs the command; the others do what it says.
int Run(int argc, char** argv, Comm* world) {
  if (world != nullptr && world->rank() != 0) {
    FollowDriver(world);
    return 0;
  }
  const int status = RunCommand(argc, argv, world);
  if (world != nullptr) SendEnd(world);
  return status;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  using deepinfer::Fail;
  std::signal(SIGPIPE, SIG_IGN);  // a reader that went away shows as a failed write
  if (!deepinfer::HoldStandardDescriptors())
    return Fail("standard output: expected an open file, found it closed");
  std::unique_ptr<deepinfer::MpiSession> ranks;  // outlives the sentence: ends other ranks
  try {
    if (deepinfer::StartedByMpi())
      ranks = std::make_unique<deepinfer::MpiSession>(
          deepinfer::MpiSession::Options{deepinfer::kRankDeadline});
    const int status = deepinfer::Run(argc, argv, ranks ? ranks->world() : nullptr);
    if (ranks) ranks->End();
    return status;
  } catch (const std::bad_alloc&) {
    if (ranks) ranks->Fail("out of memory");
    return Fail("out of memory");
  } catch (const std::exception& e) {
    if (ranks) ranks->Fail(e.what());
    return Fail(e.what());
  }
}
