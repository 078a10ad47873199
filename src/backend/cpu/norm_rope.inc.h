// Norm and rotation of some columns of one row, for whole rows of activations and for rows on their
// way into a cache. Included inside namespace deepinfer::cpu::<isa>, after row_codec.inc.h. The
// same bits wherever the columns are cut.

// y = weight * (x * inverse) for columns [begin, end) of x; y holds these columns only.
static inline void NormColumns(const float* x, const uint8_t* weight, float inverse, bool round,
                               int64_t begin, int64_t end, float* y) {
  for (int64_t d = begin; d < end; d += kLanes) {
    const Vec gain = LoadBf16First(weight + 2 * d, end - d);
    const Vec value = gain * (LoadFirst(x + d, end - d) * Set(inverse));
    StoreFirst(y + (d - begin), RoundIf(round, value), end - d);
  }
}

// x holds columns [begin, end) of a head, both even. Rotates those that belong to its last
// rope.dim.
static inline void RotateColumns(const RowRotation& rope, int64_t row, bool inverse, bool round,
                                 int64_t head_dim, int64_t begin, int64_t end, float* x) {
  const int64_t plain = head_dim - rope.dim, first = begin > plain ? begin : plain;
  const int64_t table =
      (rope.table_rows != nullptr ? rope.table_rows[row] : row) * (rope.dim / 2) - plain / 2;
  // Even lanes get a cos - b sin, odd lanes b cos + a sin; the inverse swaps the signs of the sine
  // terms.
  const IntVec signs = inverse ? Xor(EvenSigns(), SetInt(INT32_MIN)) : EvenSigns();
  for (int64_t d = first; d < end; d += kLanes) {
    const int64_t n = end - d;
    const Vec pairs = LoadFirst(x + (d - begin), n);
    const Vec cosines = LoadTwiceFirst(rope.cos + table + d / 2, n);
    const Vec sines = LoadTwiceFirst(rope.sin + table + d / 2, n);
    const Vec crossed = FromBits(Xor(Bits(SwapPairs(pairs) * sines), signs));
    StoreFirst(x + (d - begin), RoundIf(round, pairs * cosines + crossed), n);
  }
}
