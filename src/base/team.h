// Team: a fixed set of threads that run one function together and meet at barriers.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace deepinfer {

// Waits spin for a while and then sleep on a futex, so an idle team costs nothing and a busy one
// does not enter the kernel. With more threads than CPUs, or than a quota of processor time, waits
// sleep at once: a spinning thread would only keep another from running.
//
// The caller of Run is thread 0. A team of one thread per core (topology.h) binds the others to
// cores of their own. The caller is not bound, since threads that it starts later would inherit
// that; the one core without a bound thread is left to it.
class Team {
 public:
  // Throws Error(kIo) when the system refuses a thread.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }
  // Where the threads run, by thread; empty: wherever the system puts them. The first is the core
  // left to the caller.
  const std::vector<int>& cpus() const { return cpus_; }

  // Runs body(context, tid) on every thread and returns when all have finished. Not reentrant, one
  // caller at a time.
  void Run(void (*body)(void* context, int tid), void* context);

  // Every thread of the running body must call this equally often.
  void Barrier();

 private:
  // A word that threads wait on: futex when spinning was in vain.
  class Gate {
   public:
    uint32_t Current() const { return value_.load(std::memory_order_acquire); }
    void Open();
    void WaitWhile(uint32_t seen, int spins);

   private:
    std::atomic<uint32_t> value_{0};
    std::atomic<int32_t> sleepers_{0};
  };

  void Loop(int tid);
  void Stop();

  const int size_;
  const std::vector<int> cpus_;
  int spins_;
  Gate start_, barrier_;
  std::atomic<int> arrived_{0};
  void (*body_)(void*, int) = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace deepinfer
