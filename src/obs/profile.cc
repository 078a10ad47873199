#include "obs/profile.h"

namespace deepinfer {

void StepProfile::Begin(int threads, size_t n_phases, int64_t n_rows, int64_t n_seqs) {
  threads_ = threads;
  n_rows_ = n_rows;
  n_seqs_ = n_seqs;
  phases_.assign(n_phases, {});
  times_.assign(static_cast<size_t>(threads) * n_phases, {});
}

int64_t StepProfile::bytes() const {
  int64_t sum = 0;
  for (const PhaseRecord& p : phases_) sum += p.bytes;
  return sum;
}

double StepProfile::flops() const {
  double sum = 0;
  for (const PhaseRecord& p : phases_) sum += p.flops;
  return sum;
}

}  // namespace deepinfer
