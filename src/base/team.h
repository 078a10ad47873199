// Team: a fixed set of threads that run one function together and meet at barriers.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace deepinfer {

// Waits spin for a while and then sleep on a futex, so an idle team costs nothing and a busy one
// does not enter the kernel. The caller of Run is thread 0.
class Team {
 public:
  // Throws Error(kIo) when the system refuses a thread.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

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
  int spins_;
  Gate start_, barrier_;
  std::atomic<int> arrived_{0};
  void (*body_)(void*, int) = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace deepinfer
