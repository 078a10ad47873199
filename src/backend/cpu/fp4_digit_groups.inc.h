// Rows of x taken apart into digits for fp4_digits.inc.h. Included inside namespace
// deepinfer::cpu::<isa>::digits, after row_codec.inc.h.

constexpr int kGroupColumns = 512;  // 16 blocks, a lane each
constexpr int kDigitBits = 7;

// 512 activations. Vector 2d + odd of a digit: lane 4b + i holds that digit of columns 8d + odd,
// 8d + odd + 2, ... (four of them) of block 4i + b.
struct alignas(64) DigitGroup {
  int8_t digit[3][8][64];
  int32_t correction[16];  // -12 * sum of the block
  float scale[16];         // half of what a unit of the block is worth
};

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
    const IntVec offset = AddInt(q, SetInt(64 + (64 << 7) + (64 << 14)));  // digits plus 64
    const IntVec mask = SetInt(127), half = SetInt(64);
    StoreBytes(digits[0][block] + v * kLanes, SubInt(And(offset, mask), half));
    StoreBytes(digits[1][block] + v * kLanes, SubInt(And(ShiftRight<7>(offset), mask), half));
    StoreBytes(digits[2][block] + v * kLanes, SubInt(ShiftRight<14>(offset), half));
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

// Rows of w.cols floats. scratch: ExpertScratchFloats(w.cols).
static Inputs Prepare(const WeightView& w, const float* const* x, int64_t n, float* scratch) {
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
