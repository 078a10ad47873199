// DepthPolicy: how many draft tokens a step verifies (spec 05 section 4.2).
//
// A row more costs time; it pays when the chance that its token is emitted is worth more than that
// time at the rate tokens come at now. The chance follows from the confidence head, corrected by
// what was accepted so far; the time from steps measured so far. Now and then another depth is
// tried, so that its time is known. When drafting as a whole does not pay, it pauses, and is tried
// again later, less and less often.
//
// The decision about a draft uses the confidence of its own slot and those before, never of later
// ones, and times: so it cannot bias what rejection emits. Pure: times are passed in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace deepinfer {

class DepthPolicy {
 public:
  // most: greatest depth. relative_cost(rows): what a step of so many rows is believed to cost
  // beside others; measurements correct it.
  DepthPolicy(int64_t most, std::function<double(int64_t)> relative_cost);

  // Is it worth to draft at all, behind the step to come?
  bool Drafts() const { return pause_ == 0; }

  // Depths for the n sequences that were drafted for. confidence [n, block] before the sigmoid,
  // depths [n].
  void Choose(std::span<const float> confidence, int64_t block, std::span<int64_t> depths);

  // A verification of a draft with this confidence accepted `accepted` of `depth` tokens.
  void Verified(std::span<const float> confidence, int64_t depth, int64_t accepted);

  // A step that only continued the answers of n_seqs sequences, after its verifications: rows,
  // seconds it took, and seconds of the draft before it (0: none).
  void Stepped(int64_t n_seqs, int64_t rows, double step_s, double draft_s);

  // Seconds a step of so many rows is expected to take; 0 before the first measurement.
  double StepSeconds(int64_t rows) { return base_s_ + slope_s_ * Growth(rows); }

 private:
  // What the believed cost of so many rows exceeds that of one by, in parts of it.
  double Growth(int64_t rows);
  double Chance(float confidence, int64_t slot) const;
  void Fit();
  void Judge(int64_t n_seqs);

  struct Measured {
    double seconds = 0;  // running mean
    int64_t n = 0;
  };

  const int64_t most_;
  const std::function<double(int64_t)> relative_cost_;
  std::vector<double> growth_;               // by rows, as far as it was asked for
  std::vector<Measured> measured_;           // by rows
  double base_s_ = 0, slope_s_ = 0;          // seconds = base + slope * growth, fitted to them
  std::vector<double> expected_, accepted_;  // by slot: sums of chances and acceptances, fading
  double promised_ = 0;                      // tokens that the drafts of the step promised
  double tokens_ = 0, time_ = 0;  // promised, of steps since drafting was taken up, fading
  int64_t n_judged_ = 0;          // such steps
  int64_t n_choices_ = 0;
  int64_t pause_;   // steps without drafts still to come
  int64_t probes_;  // steps at full depth still to come
  int64_t next_pause_;
};

}  // namespace deepinfer
