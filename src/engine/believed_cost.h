// What a step of so many rows is believed to cost beside others, before anything was measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace deepinfer {

// Remembers what `cost` says: it is asked once for every number of rows, from 1 on.
class BelievedCost {
 public:
  explicit BelievedCost(std::function<double(int64_t rows)> cost) : cost_(std::move(cost)) {}

  double operator()(int64_t rows) {
    while (std::ssize(costs_) <= rows)
      costs_.push_back(cost_(std::max<int64_t>(std::ssize(costs_), 1)));
    return costs_[static_cast<size_t>(rows)];
  }

 private:
  std::function<double(int64_t)> cost_;
  std::vector<double> costs_;  // by rows, as far as they were asked for
};

}  // namespace deepinfer
