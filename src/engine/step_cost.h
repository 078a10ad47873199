// StepCost: seconds that a step of so many rows takes, predicted from steps measured.
//
// It knows rows only, not what they are for: rows of several sequences, of drafts or of a prompt
// count alike. It predicts well what it was told about: steps like those measured (so far the
// engine tells it of steps that continue answers, up to 64 rows), and numbers of rows in between
// or beyond as far as the belief has the right shape there. Bytes alone do not have it where
// multiplying bounds a step: who asks about chunks of a prompt believes in a cost that includes
// operations, and keeps a StepCost of their own. Forgets slowly; pure, and deterministic in what
// it was told.
//
// seconds = base + slope * growth(rows), where growth is what the believed cost of so many rows
// exceeds that of one by, in parts of it; slope = base when the belief is right. A Kalman filter
// of the two numbers: a machine that becomes slower or faster as a whole is followed within a few
// steps, whatever their rows, and leaves the relation between the two as it was.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/believed_cost.h"

namespace deepinfer {

class StepCost {
 public:
  // believed(rows): what a step is believed to cost beside others. Asked once for every number.
  explicit StepCost(std::function<double(int64_t)> believed);

  void Measured(int64_t rows, double seconds);

  // Expected; 0 before the first measurement.
  double Seconds(int64_t rows) { return base_ + slope_ * Growth(rows); }

  // What `rows` + 1 take longer than `rows`; at the lower end of what is possible, so that rows
  // whose time is not known yet are tried.
  double SecondsOfNext(int64_t rows);

 private:
  double Growth(int64_t rows);

  BelievedCost believed_;
  double base_ = 0, slope_ = 0;
  double base_base_ = 0, base_slope_ = 0, slope_slope_ = 0;  // covariance
};

}  // namespace deepinfer
