// Products of fp4 expert weights with quantised activations as exact integers. Included inside
// namespace deepinfer::cpu::<isa>::digits, after weight_rows.inc.h and the instruction set's
// fp4_digits_*.inc.h. Offers what matrix.inc.h offers, for GateUpArgs and DownArgs with fp8_inputs.
//
// A block of 32 activations is q * 2^n with whole |q| < 2^18, three digits of base 256 between -128
// and 127. A weight is 2w + 12, a byte between 0 and 24. So the sum of a block is exact in int32,
// in any order:  sum 2w q = sum (2w + 12) q - 12 sum q.  Blocks add up in 16 lanes: lane 4b + i of
// every group of 512 columns holds its block 4i + b, and groups follow in ascending order; then the
// lanes are added in the order of Sum. So a result depends on nothing but its row and its weights,
// and AVX2 and AVX-512 agree bit for bit.
//
// Bound: weight bytes at one row, the three products of digits from two. Of one core's read
// bandwidth at released widths, AVX-512: 0.67 at one row, 0.55 at two; AVX2: 0.45 to 0.49 at one
// row, probably bound by instructions. Panels of four weight rows are as fast as eight at one and
// two rows, and 8 to 17 % slower at 32.

// Weight rows that share a pass over the digits.
constexpr int kPanel = 8;
// 32 rows of 5120 columns are 530 KB of digits, in the second-level cache.
constexpr int kBlockRows = 32;
// Rows whose digits of a group (13 KB) stay in the first-level cache for a panel.
constexpr int kSharedRows = 8;

// Rows of x as digits, [n][n_groups]. Columns that do not exist are zero.
struct Inputs {
  const DigitGroup* groups;
  int64_t n, n_groups;
};

// Digit i of the 16 blocks of a group, [block][column].
typedef uint8_t LinearDigits[3][16][32];

// One block: its digits, the correction and the scale of its lane. A value that is not finite makes
// the scale NaN.
static inline void SplitBlock(const float* x, int64_t block, LinearDigits& digits, int32_t* sum,
                              float* scale) {
  constexpr uint32_t kLeastExponent = 20;  // 2^-107: keeps both scales normal
  const float largest = LargestMagnitude(x, 32, 0.0f);
  uint32_t exponent;
  memcpy(&exponent, &largest, 4);
  exponent >>= 23;
  if (exponent < kLeastExponent) exponent = kLeastExponent;
  const bool finite = exponent < 255;
  const Vec factor = Set(finite ? FloatFromBits((271 - exponent) << 23) : 0.0f);
  Vec total = Zero();  // of whole numbers, below 2^23: exact
#pragma GCC unroll 4
  for (int v = 0; v < kBlockVecs; ++v) {
    Vec value = Load(x + v * kLanes) * factor;
    if (!finite) value = Zero();
    const IntVec q = ToInt(value);
    total = total + value;
    StoreBytes(digits[0][block] + v * kLanes, q);
    StoreBytes(digits[1][block] + v * kLanes, ShiftRight<8>(AddInt(q, SetInt(0x80))));
    StoreBytes(digits[2][block] + v * kLanes, ShiftRight<16>(AddInt(q, SetInt(0x8080))));
  }
  *sum = static_cast<int32_t>(Sum(total));
  *scale = finite ? FloatFromBits((exponent - 18) << 23) : NAN;
}

// Bytes of even or odd places of 32.
template <bool kOdd>
static inline __m128i EveryOther(const uint8_t* p) {
  const __m128i low = _mm_set1_epi16(255);
  __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16));
  a = kOdd ? _mm_srli_epi16(a, 8) : _mm_and_si128(a, low);
  b = kOdd ? _mm_srli_epi16(b, 8) : _mm_and_si128(b, low);
  return _mm_packus_epi16(a, b);
}

// Dword d of blocks b, 4 + b, 8 + b and 12 + b goes to lanes 4b ... 4b + 3 of vector 2d + kOdd.
template <bool kOdd>
static inline void SpreadDigits(const uint8_t (&blocks)[16][32], int8_t (&vectors)[8][64]) {
  for (int b = 0; b < 4; ++b) {
    const __m128i r0 = EveryOther<kOdd>(blocks[b]), r1 = EveryOther<kOdd>(blocks[4 + b]);
    const __m128i r2 = EveryOther<kOdd>(blocks[8 + b]), r3 = EveryOther<kOdd>(blocks[12 + b]);
    const __m128i low01 = _mm_unpacklo_epi32(r0, r1), high01 = _mm_unpackhi_epi32(r0, r1);
    const __m128i low23 = _mm_unpacklo_epi32(r2, r3), high23 = _mm_unpackhi_epi32(r2, r3);
    const __m128i d[4] = {_mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23),
                          _mm_unpacklo_epi64(high01, high23), _mm_unpackhi_epi64(high01, high23)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(vectors[2 * i + kOdd] + 16 * b), d[i]);
    }
  }
}

// Columns c ... of a row, up to 512 of them.
static void SplitGroup(const float* x, int64_t cols, DigitGroup* group) {
  alignas(64) LinearDigits digits;
  memset(digits, 0, sizeof digits);
  for (int64_t block = 0; block < 16; ++block) {
    const int64_t lane = block % 4 * 4 + block / 4;
    int32_t sum = 0;
    float scale = 0.0f;
    if (32 * block < cols) SplitBlock(x + 32 * block, block, digits, &sum, &scale);
    group->correction[lane] = -12 * sum;
    group->scale[lane] = scale;
  }
  for (int i = 0; i < 3; ++i) {
    SpreadDigits<false>(digits[i], group->digit[i]);
    SpreadDigits<true>(digits[i], group->digit[i]);
  }
}

// Says which panel comes after the one that is multiplied next; not used here.
static inline void ComesNext(Inputs*, const WeightView&, int64_t) {}

// Rows of w.cols floats. scratch: ExpertScratchFloats(w.cols).
static Inputs Prepare(const WeightView& w, int64_t, const float* const* x, int64_t n,
                      float* scratch) {
  DigitGroup* groups = reinterpret_cast<DigitGroup*>(scratch);
  const int64_t n_groups = (w.cols + kGroupColumns - 1) / kGroupColumns;
  for (int64_t m = 0; m < n; ++m) {
    for (int64_t g = 0; g < n_groups; ++g) {
      const int64_t c = g * kGroupColumns;
      SplitGroup(x[m] + c, w.cols - c, groups + m * n_groups + g);
    }
  }
  return {groups, n, n_groups};
}

// Group g of a weight row. The bytes of a last group that is not whole are copied first, so that
// nothing is read past the end of the tensor.
static inline void DecodeGroupOfRow(const WeightView& w, int64_t row, int64_t g, WeightGroup* out) {
  const uint8_t* codes = w.data + row * w.row_stride_bytes + g * (kGroupColumns / 2);
  const uint8_t* scales = w.scale + row * w.scale_stride_bytes + g * (kGroupColumns / 32);
  const int64_t cols = w.cols - g * kGroupColumns;
  if (cols >= kGroupColumns) return DecodeGroup(codes, scales, out);
  uint8_t tail[kGroupColumns / 2] = {}, tail_scales[kGroupColumns / 32] = {};
  memcpy(tail, codes, static_cast<size_t>(cols / 2));
  memcpy(tail_scales, scales, static_cast<size_t>(cols / 32));
  DecodeGroup(tail, tail_scales, out);
}

__attribute__((always_inline)) static inline void PrefetchGroup(const WeightView& w, int64_t row,
                                                                int64_t g) {
  Prefetch(w.data + row * w.row_stride_bytes + g * (kGroupColumns / 2), kGroupColumns / 2);
  Prefetch(w.scale + row * w.scale_stride_bytes + g * (kGroupColumns / 32), 1);
}

// As DotPanel of matrix.inc.h, of fp4 weights as stored and in one piece.
static void DotPanel(const WeightView& w, WeightDecode, int64_t row, int64_t n_out, const Inputs& x,
                     int64_t, float* y, int64_t y_stride) {
  WeightGroup weights[kPanel];
  alignas(64) LaneSums sums[kBlockRows][kPanel];
  memset(sums, 0, static_cast<size_t>(x.n) * sizeof sums[0]);
  for (int64_t g = 0; g < x.n_groups; ++g) {
    for (int j = 0; j < kPanel; ++j) {
      const int64_t source = row + Smaller(j, n_out - 1);
      DecodeGroupOfRow(w, source, g, weights + j);
      PrefetchGroup(w, source + kPanel, g);
    }
    for (int64_t first = 0; first < x.n; first += kSharedRows) {
      const int64_t end = Smaller(first + kSharedRows, x.n);
      for (int j = 0; j < kPanel; j += 2) {
        for (int64_t m = first; m < end; ++m) {
          MultiplyGroup(weights + j, x.groups[m * x.n_groups + g], sums[m] + j);
        }
      }
    }
  }
  for (int64_t m = 0; m < x.n; ++m) {
    for (int j = 0; j < kPanel; ++j) y[m * y_stride + j] = SumLanes(sums[m][j]);
  }
}
