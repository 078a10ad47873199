// Census: where the time of profiled steps went, by phase, layer or any other grouping.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "obs/profile.h"

namespace deepinfer {

// Sums over the calls of one group of phases.
struct CensusRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;       // from the start of the phase to the end of its barrier, on thread 0
  double wait_seconds = 0;  // of them at the barrier, mean over the threads: imbalance
  int64_t bytes = 0;        // that had to be read
  double flops = 0;

  CensusRow& operator+=(const CensusRow& other);
};

class Census {
 public:
  // Adds a finished step.
  void Add(const StepProfile& step);

  int64_t steps() const { return steps_; }
  int64_t rows() const { return rows_; }  // of all steps

  // Rows with the same name of `group` (phase, layer), in the order of their first phase; phases
  // whose group is "" are left out.
  using Group = std::function<std::string(const std::string& phase, int layer)>;
  std::vector<CensusRow> By(const Group& group) const;
  // All phases together, and those that `is_wanted`.
  CensusRow Total() const;
  CensusRow Total(const std::function<bool(const std::string& phase, int layer)>& is_wanted) const;

 private:
  struct Entry {
    int layer;
    CensusRow row;
  };
  Entry& At(size_t place, const PhaseRecord& phase);

  std::vector<Entry> entries_;  // by place in the plan as far as plans agree
  int64_t steps_ = 0, rows_ = 0;
};

}  // namespace deepinfer
