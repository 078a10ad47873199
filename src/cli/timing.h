// How fast answers came.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/request.h"

namespace deepinfer {

struct Timing {
  int64_t prompt_tokens = 0, output_tokens = 0;  // of all sequences
  double prompt_tokens_per_s = 0;                // until every sequence has its first token
  double ttft_s = 0;                             // time to first token, mean over sequences
  // Time per output token after the first, mean over the sequences with more than one.
  std::optional<double> tpot_s;
};

// A stopwatch that is told about deltas as they come.
class TimingRecorder {
 public:
  // Starts now, with requests submitted and nothing computed.
  TimingRecorder() : start_(Clock::now()) {}
  void Add(const Delta& delta);
  Timing Summary(int64_t prompt_tokens) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Times {
    Clock::time_point first, last;
    int64_t n_tokens = 0;
  };
  Clock::time_point start_;
  std::map<RequestId, Times> times_;
};

// One line for people. bytes_per_token > 0: bytes read for a token, and what share of
// `read_bandwidth` bytes per second that makes.
std::string TimingLine(const Timing& timing, int64_t bytes_per_token, double read_bandwidth);

}  // namespace deepinfer
