// Trace: the newest phases of profiled steps as Chrome trace JSON (chrome://tracing, Perfetto).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "obs/profile.h"

namespace deepinfer {

class Trace {
 public:
  // Keeps the newest `capacity` phases of every thread: room for a hundred steps or so of the
  // released model by default, about 14 MB a thread.
  explicit Trace(size_t capacity = size_t{1} << 18) : capacity_(capacity) {}

  // Adds a finished step.
  void Add(const StepProfile& step);

  // One complete event per phase and thread, and one per wait at a barrier. Times in microseconds
  // since the first step that was added.
  std::string Json() const;

 private:
  struct Event {
    PhaseTimes times;
    const char* name;
    int layer;
    int64_t bytes;
  };
  struct Ring {
    std::vector<Event> events;
    size_t next = 0;  // the oldest, once the ring is full
  };

  size_t capacity_;
  int64_t start_ns_ = -1;
  std::vector<Ring> rings_;  // by thread
};

}  // namespace deepinfer
