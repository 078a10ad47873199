// ChunkPolicy: how many rows of prompts a step computes beside rows of answers.
//
// A row of a prompt makes the step longer for everybody whose answer goes on in it. Any 20 tokens
// of an answer may take `slowdown` times as long as without prompts, and no longer; and no step
// becomes longer by more than five plain ones, or by slowdown - 1 of them where that is more. A
// step reads weights once for all its rows, so one chunk holds more rows than several small ones
// of the same time together: so there are as few chunks as that allows. What suffices for all that
// is asked for is spent earlier.
//
// On one layer of released widths (384 experts, 2 threads with AMX, slowdown 2) a chunk of five
// plain steps every 5 tokens computes 86 prompt tokens a second, one of ten every 10 tokens 101,
// one of twenty every 20 tokens 129; 99 of 100 tokens come within 6.4, 10.9 and 17.6 plain steps.
//
// Expected times: of the steps measured those with about as many rows, scaled in between as
// believed. StepCost is not used: it trusts the relation between numbers of rows as far as a step
// is bound by what it reads, while chunks come to be bound by arithmetic. Pure: times are passed
// in.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>

#include "engine/believed_cost.h"

namespace deepinfer {

class ChunkPolicy {
 public:
  // slowdown: above 1, or 0 for chunks of any size. believed(rows): what a step is believed to
  // cost beside others; asked once for every number.
  ChunkPolicy(double slowdown, std::function<double(int64_t)> believed);

  // How many of `prompt_rows` rows (at least 1) to compute in a step with so many rows of answers
  // and room for `most`: as many as possible when it has none.
  int64_t Rows(int64_t answer_rows, int64_t prompt_rows, int64_t most);

  // What a step took. tokens: of each answer that went on in it, on average.
  void Stepped(int64_t answer_rows, int64_t prompt_rows, double tokens, double seconds);

 private:
  double Seconds(int64_t rows);
  int64_t WindowSteps() const;
  int64_t PartSteps() const;
  double Spent(int64_t steps) const;
  double Learn(int64_t rows, double seconds);

  double slowdown_;
  BelievedCost believed_;
  // Of the steps with 2^i to 2^(i+1) - 1 rows, fading.
  struct Measured {
    bool any = false;
    // Logarithms to base 2 of rows, and of seconds by what so many were believed to cost.
    double rows, rate;
  };
  std::array<Measured, 20> measured_{};
  double tokens_ = 1;  // of an answer in a step
  // What prompts made the last steps longer by, newest first, in steps without.
  std::deque<double> longer_;
};

}  // namespace deepinfer
