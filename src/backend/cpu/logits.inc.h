// Largest logits. Included inside namespace deepinfer::cpu::<isa>, after vec.inc.h. Bound by the
// second-level cache, where the thread's columns of the head's product still lie.

// Adds column `id` to `best`.
static inline void TakeLogit(float logit, int64_t id, TopLogit* best) {
  if (best->id == -2) return;
  const int32_t column = static_cast<int32_t>(id);
  if (!(logit < INFINITY)) {
    best->id = -2;
  } else if (logit > best->value || (logit == best->value && column < best->id)) {
    best->value = logit;
    best->id = column;
  }
}

// Every lane keeps its largest logit and the first column of the vector that had it.
void TopLogits(const TopLogitsArgs& a, Work w) {
  const Span part = SplitColumns(a.vocab, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    const float* logits = a.logits + r * a.vocab;
    Vec value = Set(-INFINITY), column = FromBits(SetInt(-1)), sound = Set(1.0f);
    int64_t c = part.begin;
    for (; c + kLanes <= part.end; c += kLanes) {
      const Vec l = Load(logits + c);
      const auto larger = Less(value, l);
      value = Select(larger, l, value);
      column = Select(larger, FromBits(SetInt(static_cast<int32_t>(c))), column);
      sound = Select(Less(l, Set(INFINITY)), sound, Zero());
    }
    float values[kLanes], columns[kLanes];
    Store(values, value);
    Store(columns, column);
    TopLogit best = {-INFINITY, -1};
    if (LaneBits(Less(sound, Set(0.5f))) != 0) best.id = -2;
    for (int lane = 0; lane < kLanes; ++lane) {
      int32_t first;
      memcpy(&first, columns + lane, 4);
      if (first >= 0) TakeLogit(values[lane], first + lane, &best);
    }
    for (; c < part.end; ++c) TakeLogit(logits[c], c, &best);
    a.best[r * w.n + w.tid] = best;
  }
}
