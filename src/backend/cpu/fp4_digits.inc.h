// Products of fp4 expert weights with quantised activations as exact integers. Included inside
// namespace deepinfer::cpu::<isa>::digits, after fp4_digit_groups.inc.h and the instruction set's
// fp4_digits_*.inc.h. Offers what matrix.inc.h offers, for GateUpArgs and DownArgs with fp8_inputs.
//
// A block of 32 activations is q * 2^n with whole |q| < 2^18, three digits of base 128 between -64
// and 63. A weight is 2w + 12, a byte between 0 and 24. So the sum of a block is exact in int32,
// in any order:  sum 2w q = sum (2w + 12) q - 12 sum q.  Blocks add up in 16 lanes: lane 4b + i of
// every group of 512 columns holds its block 4i + b, and groups follow in ascending order; then the
// lanes are added in the order of Sum. So a result depends on nothing but its row and its weights,
// and AVX2 and AVX-512 agree bit for bit.
//
// Bound: weight bytes at one row, the three products of digits from two. Of one core's read
// bandwidth at released widths, AVX-512: 0.75 to 0.77 at one row, 0.65 at two; AVX2: 0.59 to 0.64
// at one row. With the weights in the third-level cache a row takes 0.6 of the time (AVX2: 0.87, so
// instructions bound it). Tried without success: decoded weights through the first-level cache,
// shared by two products (0.68; AVX2 0.50); prefetching to the first-level cache (AVX-512: 0.73),
// two groups ahead in the row as well (0.70), panels of 4 or 16 rows (0.70, 0.74); rows one after
// the other at AVX-512 (0.73, w2 0.68), panels at AVX2 (0.59).

// Weight rows that are taken a group at a time, but for kFewRows rows of x or less: one after the
// other, as they lie in memory.
constexpr int kPanel = 8;
// 32 rows of 5120 columns are 530 KB of digits, in the second-level cache.
constexpr int kBlockRows = 32;
// Rows whose digits of a group (26 KB) stay in the first-level cache for a panel.
constexpr int kSharedRows = 16;
// How far ahead weights are asked for where they are read as they lie in memory.
constexpr int64_t kFewAheadBytes = 2048;

typedef Vec GroupSums[kPanel][kParts];

// Says which panel comes after the one that is multiplied next; not used here.
static inline void ComesNext(Inputs*, const WeightView&, int64_t) {}

// Asks for a group of a weight row.
template <_mm_hint kHint>
__attribute__((always_inline)) static inline void PrefetchGroup(const uint8_t* codes,
                                                                const uint8_t* scales) {
#pragma GCC unroll 4
  for (int i = 0; i < kGroupColumns / 2; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(codes + i), kHint);
  }
  _mm_prefetch(reinterpret_cast<const char*>(scales), kHint);
}

// Adds a group of a weight row, of which the first n_blocks blocks exist, times that of n rows of
// x, x_stride groups apart, to their sums.
template <bool kWhole>
__attribute__((always_inline)) static inline void AddBlocks(const uint8_t* codes,
                                                            const uint8_t* scales, int64_t n_blocks,
                                                            const DigitGroup* x, int64_t x_stride,
                                                            int64_t n, int j, GroupSums* sums) {
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    const WeightPart w = DecodePart<kWhole>(codes, scales, part, n_blocks);
    for (int64_t m = 0; m < n; ++m) {
      Vec& sum = sums[m][j][part];
      sum = Fma(MultiplyPart(w, x[m * x_stride], part), w.scale, sum);
    }
  }
}

// The same for group g of a row of w. Asks for the row `ahead` further down.
template <_mm_hint kHint>
__attribute__((always_inline)) static inline void AddGroup(const WeightView& w, int64_t row,
                                                           int64_t ahead, int64_t g,
                                                           const Inputs& x, int64_t first,
                                                           int64_t n, int j, GroupSums* sums) {
  const uint8_t* codes = w.data + row * w.row_stride_bytes + g * (kGroupColumns / 2);
  const uint8_t* scales = w.scale + row * w.scale_stride_bytes + g * (kGroupColumns / 32);
  const DigitGroup* groups = x.groups + first * x.n_groups + g;
  const int64_t n_blocks = w.cols / 32 - g * (kGroupColumns / 32);
  PrefetchGroup<kHint>(codes + ahead * w.row_stride_bytes, scales + ahead * w.scale_stride_bytes);
  if (n_blocks >= kGroupColumns / 32) {
    AddBlocks<true>(codes, scales, 0, groups, x.n_groups, n, j, sums + first);
  } else {
    AddBlocks<false>(codes, scales, n_blocks, groups, x.n_groups, n, j, sums + first);
  }
}

// As DotPanel of matrix.inc.h, of fp4 weights as stored.
static void DotPanel(const WeightView& w, WeightDecode, int64_t row, int64_t n_out, const Inputs& x,
                     float* y, int64_t y_stride) {
  alignas(64) GroupSums sums[kBlockRows];
  memset(sums, 0, static_cast<size_t>(x.n) * sizeof sums[0]);
  const auto source = [row, n_out](int j) { return row + Smaller(j, n_out - 1); };
  if (x.n <= kFewRows) {
    const int64_t ahead = (kFewAheadBytes - 1) / w.row_stride_bytes + 1;
    for (int j = 0; j < kPanel; ++j) {
      for (int64_t g = 0; g < x.n_groups; ++g) {
        AddGroup<_MM_HINT_T0>(w, source(j), ahead, g, x, 0, x.n, j, sums);
      }
    }
  } else {
    for (int64_t g = 0; g < x.n_groups; ++g) {
      for (int64_t first = 0; first < x.n; first += kSharedRows) {
        const int64_t n = Smaller(kSharedRows, x.n - first);
        for (int j = 0; j < kPanel; ++j) {
          AddGroup<_MM_HINT_T1>(w, source(j), kPanel, g, x, first, n, j, sums);
        }
      }
    }
  }
  for (int64_t m = 0; m < x.n; ++m) {
    for (int j = 0; j < kPanel; ++j) y[m * y_stride + j] = SumLanes(sums[m][j]);
  }
}
