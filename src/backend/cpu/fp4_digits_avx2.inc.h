// The loops of fp4_digits.inc.h for AVX2. Included inside namespace deepinfer::cpu::avx2::digits,
// after
// fp4_digit_groups.inc.h. The 16 lanes of a group are two vectors; memory looks as for AVX-512.

constexpr int kParts = 2;    // vectors that the 16 lanes of a group fill
constexpr int kFewRows = 2;  // see fp4_digits.inc.h

// Half of the lanes of a group of a weight row: bytes, vector v as that half of vector v of
// DigitGroup, and scales.
struct WeightPart {
  __m256i bytes[8];
  Vec scale;
};

static inline __m256i LoadBytes(const void* p) {
  return _mm256_load_si256(static_cast<const __m256i*>(p));
}

// 2^(byte - 127) of 8 blocks; byte 0 is a subnormal float, 255 NaN.
static inline Vec DecodeScales(__m128i bytes) {
  const IntVec s = _mm256_cvtepu8_epi32(bytes);
  const IntVec special =  // 0 and 255
      _mm256_cmpeq_epi32(And(AddInt(s, SetInt(1)), SetInt(254)), SetInt(0));
  return FromBits(Or(ShiftLeft<23>(s), And(special, SetInt(0x400000))));
}

// Of the 8 scales at p the first n, the others 1.
static inline int64_t LoadFirstScales(const uint8_t* p, int64_t n) {
  int64_t scales = 0x7f7f7f7f7f7f7f7f;
  if (n >= 8) {
    memcpy(&scales, p, 8);
  } else {
    for (int64_t i = 0; i < n; ++i) memcpy(reinterpret_cast<uint8_t*>(&scales) + i, p + i, 1);
  }
  return scales;
}

// Part `part` of a group of which only the first n blocks exist; kWhole: all 16.
template <bool kWhole>
__attribute__((always_inline)) static inline WeightPart DecodePart(const uint8_t* codes,
                                                                   const uint8_t* scales, int part,
                                                                   int64_t n) {
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m256i low = _mm256_set1_epi8(15);
  __m256i l[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const uint8_t* p = codes + 64 * i + 32 * part;
    const int64_t n_dwords = 4 * n - 16 * i - 8 * part;
    l[i] = kWhole ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
                  : _mm256_maskload_epi32(reinterpret_cast<const int*>(p), FirstLanes(n_dwords));
  }
  const __m256i low01 = _mm256_unpacklo_epi32(l[0], l[1]);
  const __m256i high01 = _mm256_unpackhi_epi32(l[0], l[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(l[2], l[3]);
  const __m256i high23 = _mm256_unpackhi_epi32(l[2], l[3]);
  const __m256i dwords[4] = {
      _mm256_unpacklo_epi64(low01, low23), _mm256_unpackhi_epi64(low01, low23),
      _mm256_unpacklo_epi64(high01, high23), _mm256_unpackhi_epi64(high01, high23)};
  WeightPart w;
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) {
    const __m256i even = And(dwords[d], low), odd = And(ShiftRight<4>(dwords[d]), low);
    w.bytes[2 * d] = _mm256_shuffle_epi8(table, even);
    w.bytes[2 * d + 1] = _mm256_shuffle_epi8(table, odd);
  }
  const __m128i order = part == 0
                            ? _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0)
                            : _mm_setr_epi8(2, 6, 10, 14, 3, 7, 11, 15, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m128i bytes =
      kWhole ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales))
             : _mm_set_epi64x(LoadFirstScales(scales + 8, n - 8), LoadFirstScales(scales, n));
  w.scale = DecodeScales(_mm_shuffle_epi8(bytes, order));
  return w;
}

// Products of one digit, summed to pairs of columns: at most 24 * 64 * 2 * 8 fits in 16 bits.
__attribute__((always_inline)) static inline __m256i SumDigit(const WeightPart& w,
                                                              const int8_t (&digit)[8][64], int h) {
  __m256i sum = _mm256_maddubs_epi16(w.bytes[0], LoadBytes(digit[0] + h));
#pragma GCC unroll 7
  for (int v = 1; v < 8; ++v) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w.bytes[v], LoadBytes(digit[v] + h)));
  }
  return sum;
}

// Part `part` of the blocks of a group of x times those of a weight row, each in its lane.
__attribute__((always_inline)) static inline Vec MultiplyPart(const WeightPart& w,
                                                              const DigitGroup& x, int part) {
  IntVec t = LoadBytes(x.correction + 8 * part);
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    const __m256i place = _mm256_set1_epi16(static_cast<int16_t>(1 << (kDigitBits * i)));
    t = AddInt(t, _mm256_madd_epi16(SumDigit(w, x.digit[i], 32 * part), place));
  }
  return ToFloat(t) * Load(x.scale + 8 * part);
}

static inline float SumLanes(const Vec (&lanes)[kParts]) { return Sum(lanes[0] + lanes[1]); }
