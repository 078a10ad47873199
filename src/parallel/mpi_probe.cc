// Processes of mpirun that exchange words at random until something happens to one of them
// (tests/python/test_rank_liveness.py).
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "parallel/mpi_session.h"

namespace deepinfer {
namespace {

using Random = std::mt19937;

struct Plan {
  std::string what;  // happens to the victim before call `at`
  int victim, at, calls;
  uint32_t seed;
  int64_t deadline_ms;
  int ranks_per_host;
};

Plan PlanOf(char** argv) {
  const auto number = [&](int i) { return std::atoi(argv[i]); };
  return {argv[1],   number(2), number(3), number(4), static_cast<uint32_t>(number(5)),
          number(6), number(7)};
}

int64_t Draw(Random& random, int64_t below) {
  return std::uniform_int_distribution<int64_t>(0, below - 1)(random);
}

void Expect(bool right, const char* what) {
  if (!right) throw Error(Code::kCorrupt, fmt::format("{}: not what the ranks said", what));
}

// Sizes around those of chunks, and small ones.
int64_t DrawWords(Random& random) {
  constexpr int64_t kSizes[] = {1, 3, 100, 1000, 32767, 32768, 32769, 90'000};
  return kSizes[Draw(random, 8)];
}

uint32_t Word(uint32_t seed, int64_t i) { return static_cast<uint32_t>(i * 2654435761u) ^ seed; }

void TryMerge(Comm& comm, Random& random) {
  const uint32_t seed = random();
  std::vector<uint32_t> words(static_cast<size_t>(DrawWords(random)));
  for (size_t i = 0; i < words.size(); ++i) {
    if (static_cast<int>(i * 7 % static_cast<size_t>(comm.size())) == comm.rank())
      words[i] = Word(seed, static_cast<int64_t>(i));
  }
  comm.Merge(words.data(), std::ssize(words));
  comm.ThrowIfFailed();
  for (size_t i = 0; i < words.size(); ++i)
    Expect(words[i] == Word(seed, static_cast<int64_t>(i)), "merge");
}

void TryGather(Comm& comm, Random& random) {
  const auto seed = static_cast<int64_t>(random() % 1000);
  const int64_t n_rows = 1 + Draw(random, 4);
  std::vector<int64_t> cuts = {0};
  for (int r = 0; r < comm.size(); ++r)
    cuts.push_back(cuts.back() + Draw(random, 3) * DrawWords(random) / comm.size());
  const int64_t stride = cuts.back() + 3;
  const auto value = [&](int64_t i) { return static_cast<float>((seed + i) % 10'000); };
  std::vector<float> rows(static_cast<size_t>(n_rows * stride), -1);
  const auto own = static_cast<size_t>(comm.rank());
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t c = cuts[own]; c < cuts[own + 1]; ++c)
      rows[static_cast<size_t>(r * stride + c)] = value(r * stride + c);
  }
  comm.Gather(rows.data(), n_rows, stride, cuts);
  comm.ThrowIfFailed();
  for (int64_t i = 0; i < std::ssize(rows); ++i)
    Expect(rows[static_cast<size_t>(i)] == (i % stride < cuts.back() ? value(i) : -1), "gather");
}

void TryBroadcast(Comm& comm, Random& random) {
  const uint32_t seed = random();
  std::vector<uint32_t> words(static_cast<size_t>(DrawWords(random)), comm.rank() == 0 ? seed : 0);
  comm.Broadcast(words.data(), std::ssize(words) * 4, 0);
  comm.ThrowIfFailed();
  for (const uint32_t word : words) Expect(word == seed, "broadcast");
}

void Happen(const Plan& plan, Comm& world) {
  if (plan.what == "kill") raise(SIGKILL);
  if (plan.what == "stop") raise(SIGSTOP);
  if (plan.what == "delay")
    std::this_thread::sleep_for(std::chrono::milliseconds(plan.deadline_ms + 1500));
  if (plan.what == "leave") throw Error(Code::kInvalid, "the victim has other plans");
  uint32_t words[2] = {};
  if (plan.what == "other") world.Merge(words, 2);
}

void Exchange(const Plan& plan, Comm& world) {
  const auto near = world.Split(world.rank() / 2, "near"),
             far = world.Split(world.rank() % 2, "far");
  world.ThrowIfFailed();
  Random random(plan.seed);  // the same on all ranks
  for (int i = 0; i < plan.calls; ++i) {
    if (i == plan.at && world.rank() == plan.victim) {
      Happen(plan, world);
      if (plan.what == "skip") ++i;
    }
    Random call(plan.seed * 1000 + static_cast<uint32_t>(i));
    Comm& comm = *std::vector<Comm*>{&world, near.get(), far.get()}[call() % 3];
    (std::vector{TryMerge, TryGather, TryBroadcast}[call() % 3])(comm, call);
  }
}

// Prints what a merge takes, by size.
void Measure(const Plan& plan, Comm& world) {
  for (const int64_t bytes : {64, 20'480, 122'880, 1 << 20}) {
    std::vector<uint32_t> words(static_cast<size_t>(bytes / 4));
    for (int warm = 0; warm < 100; ++warm) world.Merge(words.data(), std::ssize(words));
    world.TakeStats();
    for (int i = 0; i < plan.calls; ++i) world.Merge(words.data(), std::ssize(words));
    const CommStats stats = world.TakeStats();
    if (world.rank() == 0)
      fmt::print("merge of {} bytes on {} ranks: {:.2f} us\n", bytes, world.size(),
                 static_cast<double>(stats.nanoseconds) / 1e3 / static_cast<double>(stats.calls));
  }
}

int Run(char** argv) {
  const Plan plan = PlanOf(argv);
  std::unique_ptr<MpiSession> session;
  try {
    session = std::make_unique<MpiSession>(
        MpiSession::Options{std::chrono::milliseconds(plan.deadline_ms), plan.ranks_per_host,
                            std::chrono::seconds(plan.what == "begin" ? 1 : 60)});
    if (plan.what == "time")
      Measure(plan, *session->world());
    else
      Exchange(plan, *session->world());
    session->End();
    return 0;
  } catch (const Error& e) {
    if (session) session->Fail(e.what());
    fmt::print(stderr, "rank {}: {}\n", session ? session->world()->rank() : -1, e.what());
    return 2;
  }
}

}  // namespace
}  // namespace deepinfer

int main(int, char** argv) { return deepinfer::Run(argv); }
