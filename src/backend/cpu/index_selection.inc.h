// The best entries of a stream of scores. Included inside namespace deepinfer::cpu::<isa>, after
// vec.inc.h. What is kept does not grow with the stream: the best `keep` so far and as many
// newcomers.

// An entry waits with its score as an integer of the same order.
struct KeptEntry {
  uint32_t order;
  int32_t index;
};
static_assert(sizeof(KeptEntry) == sizeof(ScoredIndex), "the scratch is booked for ScoredIndex");

constexpr uint32_t kAlwaysKept = 0xffffffff;  // above every score

// Larger score, larger integer; -0 equals +0; NaN is below everything.
static inline IntVec ScoreOrders(Vec score) {
  const IntVec bits = Bits(score + Zero());
  const IntVec negative = Xor(bits, SetInt(-1)), positive = Or(bits, SetInt(INT32_MIN));
  const Vec order = Select(Less(score, Zero()), FromBits(negative), FromBits(positive));
  return Bits(Select(IsNan(score), Zero(), order));
}

// The score of an order above that of NaN.
static inline float ScoreOf(uint32_t order) {
  return FloatFromBits((order & 0x80000000) != 0 ? order ^ 0x80000000 : ~order);
}

// The best `keep` entries of all that were added, in ascending order of their index. Entries come
// in that order, so among equals the ones already here win.
struct Selection {
  KeptEntry* entries;  // [2 * keep]
  int64_t keep, count;
  int64_t floor;  // newcomers must be above; -1 until `keep` entries are known
};

struct Threshold {
  uint32_t order;   // of the last entry that stays
  int64_t n_equal;  // how many entries of that order stay
};

// Byte by byte from the top: counts the entries by their next byte and walks down to the keep-th.
static inline Threshold FindThreshold(const KeptEntry* entries, int64_t count, int64_t keep) {
  Threshold t = {0, keep};
  uint32_t known = 0;  // mask of the bytes of t.order that are decided
  for (int shift = 24; shift >= 0; shift -= 8) {
    int32_t n[256] = {};
    for (int64_t i = 0; i < count; ++i) {
      if ((entries[i].order & known) == t.order) ++n[entries[i].order >> shift & 255];
    }
    uint32_t byte = 255;
    for (; n[byte] < t.n_equal; --byte) t.n_equal -= n[byte];
    t.order |= byte << shift;
    known |= 255u << shift;
  }
  return t;
}

static inline void Shrink(Selection* s) {
  if (s->count <= s->keep) return;
  Threshold t = FindThreshold(s->entries, s->count, s->keep);
  int64_t kept = 0;
  for (int64_t i = 0; i < s->count; ++i) {
    const KeptEntry e = s->entries[i];
    if (e.order < t.order || (e.order == t.order && t.n_equal-- <= 0)) continue;
    s->entries[kept++] = e;
  }
  s->count = kept;
  s->floor = t.order;
}

static inline void Offer(Selection* s, uint32_t order, int64_t index) {
  if (int64_t{order} <= s->floor) return;
  s->entries[s->count++] = {order, static_cast<int32_t>(index)};
  if (s->count == 2 * s->keep) Shrink(s);
}

// Offers n scores with their orders. Most are not above the floor: one comparison tells for a whole
// vector.
static inline void OfferScores(Selection* s, const float* scores, const uint32_t* orders,
                               const int32_t* index, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    uint32_t above = n - i >= kLanes ? (1u << kLanes) - 1 : (1u << (n - i)) - 1;
    if (s->floor > 0) {  // 0: NaN
      above &= LaneBits(Less(Set(ScoreOf(static_cast<uint32_t>(s->floor))), Load(scores + i)));
    }
    for (; above != 0; above &= above - 1) {
      const int64_t k = i + __builtin_ctz(above);
      Offer(s, orders[k], index[k]);
    }
  }
}

static inline void Append(const Selection& from, Selection* to) {
  for (int64_t i = 0; i < from.count; ++i) Offer(to, from.entries[i].order, from.entries[i].index);
}

// Writes the kept indices, ascending; returns their number.
static inline int32_t Finish(Selection* s, int32_t* indices) {
  Shrink(s);
  for (int64_t i = 0; i < s->count; ++i) indices[i] = s->entries[i].index;
  return static_cast<int32_t>(s->count);
}
