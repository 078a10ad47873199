#include "base/team.h"

#include <fmt/core.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/topology.h"

namespace deepinfer {

namespace {

constexpr int kSpins =
    4000;  // about 100 us of pauses: longer than the pause between two steps of one sequence

long Futex(std::atomic<uint32_t>* word, int op, uint32_t value) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), op | FUTEX_PRIVATE_FLAG, value,
                 nullptr, nullptr, 0);
}

// Whether all threads can run at the same time.
bool CanSpin(int threads) {
  const int quota = CpuQuota();
  return std::cmp_less_equal(threads, AllowedCpus().size()) && (quota == 0 || threads <= quota);
}

}  // namespace

void Team::Gate::Open() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) Futex(&value_, FUTEX_WAKE, INT32_MAX);
}

void Team::Gate::WaitWhile(uint32_t seen, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (Current() != seen) return;
    _mm_pause();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == seen) Futex(&value_, FUTEX_WAIT, seen);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

Team::Team(int threads)
    : size_(threads),
      cpus_(threads > 1 ? PlaceThreads(threads, OneCpuPerCore(AllowedCpus())) : std::vector<int>()),
      spins_(CanSpin(threads) ? kSpins : 0) {
  DI_CHECK(threads >= 1) << threads;
  // Signals are for the thread that runs the program: one that a team thread took would not wake
  // it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int tid = 1; tid < threads; ++tid) {
      threads_.emplace_back(&Team::Loop, this, tid);
      if (cpus_.empty()) continue;
      BindThread(threads_.back().native_handle(), cpus_[static_cast<size_t>(tid)]);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  } catch (const std::system_error& e) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    Stop();
    throw Error(Code::kIo, fmt::format("threads: expected to start {}, found room for {}: {}",
                                       threads, threads_.size() + 1, e.code().message()));
  }
}

Team::~Team() { Stop(); }

void Team::Stop() {
  stop_ = true;
  start_.Open();
  for (std::thread& t : threads_) t.join();
}

void Team::Loop(int tid) {
  for (uint32_t seen = 0;;) {
    start_.WaitWhile(seen, spins_);
    ++seen;  // Run waits for everyone, so a start cannot be missed
    if (stop_) return;
    body_(context_, tid);
    Barrier();
  }
}

void Team::Run(void (*body)(void*, int), void* context) {
  body_ = body;
  context_ = context;
  if (size_ > 1) start_.Open();
  body(context, 0);
  Barrier();
}

void Team::Barrier() {
  if (size_ == 1) return;
  const uint32_t seen = barrier_.Current();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    barrier_.Open();
  } else {
    barrier_.WaitWhile(seen, spins_);
  }
}

}  // namespace deepinfer
