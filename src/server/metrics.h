// Counters of the server in Prometheus' text format, under vLLM's names where the meaning is the
// same.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "server/engine_loop.h"

namespace deepinfer {

// Counts of values up to fixed limits. One thread at a time.
class Histogram {
 public:
  // `limits` ascending; outlives the histogram.
  explicit Histogram(std::span<const double> limits)
      : limits_(limits), counts_(limits.size() + 1) {}
  void Add(double value, int64_t times = 1);
  // Lines of the metric `name` with `labels` (without braces).
  std::string Text(const std::string& name, const std::string& labels) const;

 private:
  std::span<const double> limits_;
  std::vector<int64_t> counts_;  // the last: beyond all limits
  double sum_ = 0;
};

// Of the I/O thread.
class Metrics {
 public:
  explicit Metrics(std::string model_name);

  void FirstToken(double seconds);             // since the request came
  void MoreTokens(int64_t n, double seconds);  // n tokens, `seconds` after the ones before
  void Ended(const std::string& reason, int64_t prompt_tokens, int64_t cached_tokens,
             int64_t completion_tokens, double seconds);

  std::string Text(const EngineLoop::Stats& stats) const;

 private:
  std::string labels_;
  Histogram first_token_, per_token_, whole_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, completion_tokens_ = 0;
  std::map<std::string, int64_t> ended_;
};

}  // namespace deepinfer
