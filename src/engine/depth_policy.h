// DepthPolicy: how many draft tokens a step verifies (spec 05 section 4.2).
//
// A row more costs time; it pays when the chance that its token is emitted is worth more than that
// time at the rate tokens come at. The chance follows from the confidence head, corrected by what
// was accepted so far; the time from what a step has to read, corrected by steps measured. When
// drafting has lost a little against plain decoding it pauses, the longer the more it lost, and is
// tried again later, less and less often: what it can lose is bounded.
//
// The decision about a draft uses the confidence of its own slot and those before, never of later
// ones, and times: so it cannot bias what rejection emits. Pure: times are passed in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/step_cost.h"

namespace deepinfer {

// What is believed before anything was measured, one beside the other.
struct BelievedCosts {
  std::function<double(int64_t rows)> step;
  double draft;  // for one sequence
};

class DepthPolicy {
 public:
  // most: greatest depth.
  DepthPolicy(int64_t most, BelievedCosts believed);

  // Is it worth to draft at all, behind the step to come?
  bool Drafts() const { return pause_ == 0; }
  // Steps of answers until it is.
  int64_t pause() const { return pause_; }

  // Depths for the n sequences that were drafted for. confidence [n, block] before the sigmoid,
  // depths [n].
  void Choose(std::span<const float> confidence, int64_t block, std::span<int64_t> depths);

  // A verification of a draft with this confidence accepted `accepted` of `depth` tokens.
  void Verified(std::span<const float> confidence, int64_t depth, int64_t accepted);

  // A step that only continued the answers of n_seqs sequences, after its verifications: rows,
  // seconds it took, and seconds of the draft before it (0: none).
  void Stepped(int64_t n_seqs, int64_t rows, double step_s, double draft_s);

 private:
  double Chance(float confidence, int64_t slot) const;
  void NoteDraft(double cost);
  void Judge(int64_t n_seqs, int64_t rows, double promised);

  const int64_t most_;
  StepCost cost_;
  double draft_cost_;                        // in plain steps
  int64_t n_draft_costs_ = 0;                // measured
  std::vector<double> expected_, accepted_;  // by slot: sums of chances and acceptances, fading
  double promised_ = 0;                      // tokens that the drafts of the step promised
  double tokens_ = 0, time_ = 0;             // of the steps judged, fading; time in plain steps
  double lost_ = 0;                          // plain steps that drafts cost more than they brought
  int64_t n_choices_ = 0, next_trial_;
  bool is_trial_ = false;  // the depth of the step to come was not chosen for its worth
  int64_t pause_;          // steps without drafts still to come
  int64_t next_pause_;
  int64_t n_drafted_ = 0, next_plain_;  // steps since a plain one, and when to have one
};

}  // namespace deepinfer
