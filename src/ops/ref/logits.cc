// Largest logits.
#include <cmath>
#include <limits>

#include "ops/ref/reference.h"

namespace deepinfer::ref {

void TopLogits(const TopLogitsArgs& a, Work w) {
  const Span part = SplitColumns(a.vocab, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    TopLogit best = {-std::numeric_limits<float>::infinity(), -1};
    for (int64_t t = part.begin; t < part.end && best.id != -2; ++t) {
      const float logit = a.logits[r * a.vocab + t];
      if (!(logit < std::numeric_limits<float>::infinity())) best.id = -2;
      if (best.id != -2 && logit > best.value) best = {logit, static_cast<int32_t>(t)};
    }
    a.best[r * w.n + w.tid] = best;
  }
}

}  // namespace deepinfer::ref
