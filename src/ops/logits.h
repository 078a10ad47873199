// The largest logit of every row, found by the threads that computed them.
#pragma once

#include "ops/op.h"

namespace deepinfer {

struct TopLogit {
  float value;
  int32_t id;  // -1: no logit above -inf; -2: one is NaN or +inf
};

// best[r, tid] = the largest of the thread's columns of logits[r], the lowest id among equals.
// Threads share columns.
struct TopLogitsArgs {
  const int32_t* n_rows;
  const float* logits;  // [rows, vocab]
  TopLogit* best;       // [rows, threads]
  int32_t vocab;
};

// The id of the largest of a row's parts, in ascending order of columns; -1: none, or a part is not
// sound.
static inline int32_t LargestOfParts(const TopLogit* parts, int threads) {
  int32_t best = -1;
  for (int t = 0; t < threads; ++t) {
    if (parts[t].id == -2) return -1;
    if (parts[t].id >= 0 && (best < 0 || parts[t].value > parts[best].value)) best = t;
  }
  return best < 0 ? -1 : parts[best].id;
}

}  // namespace deepinfer
