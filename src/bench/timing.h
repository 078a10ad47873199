// CPU time of threads, and what to report of many samples.
#pragma once

#include <functional>
#include <vector>

#include "base/team.h"
#include "ops/op.h"

namespace deepinfer {

// Runs `body` on every thread of the team and returns the CPU seconds of the slowest: time in which
// somebody else had the core does not count.
double SlowestSeconds(Team& team, const std::function<void(Work)>& body);

// Times of the same work.
class Samples {
 public:
  void Add(double seconds) { values_.push_back(seconds); }
  size_t size() const { return values_.size(); }
  double Low() const { return Percentile(0.05); }  // the best of fewer than 20
  double Median() const { return Percentile(0.5); }

 private:
  double Percentile(double p) const;

  std::vector<double> values_;
};

}  // namespace deepinfer
