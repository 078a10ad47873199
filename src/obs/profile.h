// Profile: when each thread began and ended each phase of the steps that are watched.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

// Nanoseconds of the steady clock.
struct PhaseTimes {
  int64_t begin = 0, end = 0, leave = 0;  // kernel begins, kernel ends, barrier behind it passed
};

struct PhaseRecord {
  const char* name = nullptr;
  int layer = -1;  // -1: outside the layers
  int64_t bytes = 0;
  double flops = 0;
};

// The record of one step. Filled by the threads that run it, each its own times; thread 0 also says
// what the phases are.
class StepProfile {
 public:
  static int64_t Now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }

  // Forgets what was recorded and makes room. Called before a step.
  void Begin(int threads, size_t n_phases, int64_t n_rows, int64_t n_seqs);
  // There is no step in it.
  void Clear() { phases_.clear(); }
  bool empty() const { return phases_.empty(); }
  void Describe(size_t phase, const PhaseRecord& record) { phases_[phase] = record; }
  void Record(int tid, size_t phase, const PhaseTimes& times) {
    times_[static_cast<size_t>(tid) * phases_.size() + phase] = times;
  }

  std::span<const PhaseRecord> phases() const { return phases_; }
  // Of one thread, by phase.
  std::span<const PhaseTimes> times(int tid) const {
    return std::span(times_).subspan(static_cast<size_t>(tid) * phases_.size(), phases_.size());
  }
  int threads() const { return threads_; }
  int64_t n_rows() const { return n_rows_; }
  // More rows than sequences: a prompt, or a draft that is verified.
  bool is_decode() const { return n_rows_ == n_seqs_; }

  int64_t bytes() const;
  double flops() const;

 private:
  int threads_ = 0;
  int64_t n_rows_ = 0, n_seqs_ = 0;
  std::vector<PhaseRecord> phases_;
  std::vector<PhaseTimes> times_;
};

}  // namespace deepinfer
