// Taps, transition inputs and draft tokens.
#include <algorithm>
#include <limits>

#include "ops/ref/reference.h"
#include "sampler/gumbel.h"
#include "sampler/row.h"

namespace deepinfer::ref {

void Tap(const TapArgs& a, Work w) {
  const Span part = SplitColumns(a.hidden, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    const float* h = a.streams + r * a.n_streams * a.hidden;
    for (int64_t d = part.begin; d < part.end; ++d) {
      float sum = 0;
      for (int64_t s = 0; s < a.n_streams; ++s) sum += h[s * a.hidden + d];
      a.y[r * a.y_stride + d] = RoundIf(a.round, sum / static_cast<float>(a.n_streams));
    }
  }
}

void TransitionInput(const TransitionInputArgs& a, Work w) {
  const Span part = SplitWork(*a.n_seqs, 1, w);
  for (int64_t s = part.begin; s < part.end; ++s) {
    const int64_t row = s * a.block + a.slot;
    float* y = a.y + row * (a.hidden + a.embed.cols);
    std::copy_n(a.x + row * a.hidden, a.hidden, y);
    DecodeWeightRow(a.embed, a.previous[s], WeightDecode::kAsStored, y + a.hidden);
  }
}

namespace {

constexpr int64_t kChunk = 1024;  // logits a thread holds in its first-level cache

// logits += bias, and the largest of them.
DraftCandidate ChooseLargest(float* logits, const float* bias, Span ids) {
  float value = -std::numeric_limits<float>::infinity();
  int64_t id = -1;
  for (int64_t t = ids.begin; t < ids.end; t += 64) {
    const int64_t end = std::min(t + 64, ids.end);
    for (int64_t i = t; i < end; ++i) logits[i] += bias[i];
    if (LargestOf({logits + t, logits + end}) <= value) continue;
    for (int64_t i = t; i < end; ++i) {
      if (!(logits[i] > value)) continue;
      value = logits[i];
      id = i;
    }
  }
  return {value, static_cast<int32_t>(id)};
}

// logits += bias, and the token with the largest logit / temperature + noise.
DraftCandidate ChooseDrawn(float* logits, const float* bias, float temperature, Span ids,
                           GumbelMax best) {
  float scaled[kChunk];
  for (int64_t t = ids.begin; t < ids.end; t += kChunk) {
    const int64_t n = std::min(kChunk, ids.end - t);
    for (int64_t i = 0; i < n; ++i) scaled[i] = (logits[t + i] += bias[t + i]) / temperature;
    best.Add({scaled, static_cast<size_t>(n)}, t);
  }
  return {best.value(), best.id()};
}

DraftCandidate Choose(const DraftTokenArgs& a, int64_t s, Span ids) {
  const int64_t row = s * a.block + a.slot;
  float* logits = a.logits + row * a.vocab;
  const float* bias = a.bias + s * a.vocab;
  const DraftSampling& d = a.sampling;
  if (d.temperature[s] == 0) return ChooseLargest(logits, bias, ids);
  const DrawKey key = {d.seed[s], d.sample[s], static_cast<uint32_t>(a.positions[row] + 1)};
  return ChooseDrawn(logits, bias, d.temperature[s], ids, {key, static_cast<Stream>(d.stream[s])});
}

}  // namespace

void DraftChoose(const DraftTokenArgs& a, Work w) {
  const Span part = SplitWork(a.vocab, 64, w);
  for (int64_t s = 0; s < *a.n_seqs; ++s) a.candidates[s * w.n + w.tid] = Choose(a, s, part);
}

void DraftMerge(const DraftTokenArgs& a, Work w) {
  if (w.tid != 0) return;
  for (int64_t s = 0; s < *a.n_seqs; ++s) {
    DraftCandidate best = a.candidates[s * w.n];
    for (int64_t t = 1; t < w.n; ++t) {  // ascending ids: the first of equals stays
      const DraftCandidate& other = a.candidates[s * w.n + t];
      if (other.value > best.value) best = other;
    }
    a.previous[s] = a.tokens[s * a.block + a.slot] = std::max(best.id, 0);
  }
}

}  // namespace deepinfer::ref
