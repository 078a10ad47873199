// Codes with their scales to bf16. Included inside namespace deepinfer::cpu::amx, after
// weights_avx512.inc.h.
//
// Every code with its scale is a bf16 value, at most four significant bits. The scale is added to
// the exponent, which is exact while the result is a normal number; rows with scales where it might
// not be, and rows with NaN, take the way through floats. Tiles read subnormal bf16 as zero.

constexpr int kLeastScale = 10;      // 2^-9, the smallest code, times 2^(10 - 127) is normal
constexpr int kGreatestScale = 246;  // 448 * 2^(246 - 127) is finite

static inline bool ScalesAreModerate(const uint8_t* scale, int64_t n) {
  bool moderate = true;
  for (int64_t i = 0; i < n; ++i) moderate &= scale[i] >= kLeastScale && scale[i] <= kGreatestScale;
  return moderate;
}

// What a scale adds to the bits of a bf16 value.
static inline __m512i ExponentOf(uint8_t scale) {
  return _mm512_set1_epi16(static_cast<int16_t>((scale - 127) * 128));
}

// Where the codes of 64 columns must lie so that unpacking bytes to words ends in column order.
static constexpr Fp8Order MakeWordOrder() {
  Fp8Order order{};
  for (int i = 0; i < 64; ++i) {
    const int lane = i / 16, word = i % 8, upper = i / 8 % 2;
    order.column[i] = static_cast<uint8_t>(32 * upper + 8 * lane + word);
  }
  return order;
}

alignas(64) static constexpr Fp8Order kWordOrder = MakeWordOrder();

static inline __m512i AddToExponent(__m512i words, __m512i exponent) {
  const __mmask32 nonzero = _mm512_test_epi16_mask(words, _mm512_set1_epi16(0x7fff));
  return _mm512_mask_add_epi16(words, nonzero, words, exponent);
}

// n columns, a multiple of 32; writes n words rounded up to a multiple of 64. False if there is a
// NaN among them: then the words mean nothing.
static inline bool Fp8ToBf16(const uint8_t* codes, const uint8_t* scale, int64_t n, bool halved,
                             uint16_t* y) {
  const __m512i order = LoadTable(kWordOrder.column);
  const __m512i low0 = LoadTable(kFp8Tables.low), low1 = LoadTable(kFp8Tables.low + 64);
  const __m512i high0 = LoadTable(kFp8Tables.high), high1 = LoadTable(kFp8Tables.high + 64);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i largest = _mm512_set1_epi8(0x7f);
  __mmask64 nan = 0;
  for (int64_t k = 0; k < n; k += 64) {
    const bool whole = n - k >= 64;
    __m512i c = _mm512_maskz_loadu_epi8(whole ? ~0ull : 0xffffffffull, codes + k);
    nan |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(c, largest), largest);
    if (halved) c = HalveFp8(c);
    c = _mm512_permutexvar_epi8(order, c);
    const __m512i low = _mm512_permutex2var_epi8(low0, c, low1);
    __m512i high = _mm512_permutex2var_epi8(high0, c, high1);
    high = _mm512_ternarylogic_epi32(high, c, sign, 0xf8);  // high | (c & sign)
    const __m512i first = _mm512_unpacklo_epi8(low, high);
    const __m512i second = _mm512_unpackhi_epi8(low, high);
    const uint8_t* s = scale + k / 32;
    _mm512_storeu_si512(y + k, AddToExponent(first, ExponentOf(s[0])));
    _mm512_storeu_si512(y + k + 32, AddToExponent(second, ExponentOf(whole ? s[1] : s[0])));
  }
  return nan == 0;
}

// n columns, a multiple of 32. The look-up reads five bits of an index: the table holds the sixteen
// values twice, so the lowest bit of the neighbour does not matter.
static inline void Fp4ToBf16(const uint8_t* codes, const uint8_t* scale, int64_t n, uint16_t* y) {
  const __m256i values = _mm256_setr_epi16(
      0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, INT16_MIN, INT16_MIN + 0x3f00,
      INT16_MIN + 0x3f80, INT16_MIN + 0x3fc0, INT16_MIN + 0x4000, INT16_MIN + 0x4040,
      INT16_MIN + 0x4080, INT16_MIN + 0x40c0);
  const __m512i table = _mm512_broadcast_i64x4(values);
  const __m512i first =
      _mm512_cvtepu8_epi16(_mm256_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9,
                                            9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15));
  const __m512i shift = _mm512_set1_epi32(4 << 16);  // odd columns: the upper four bits
  for (int64_t k = 0; k < n; k += 32) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + k / 2));
    const __m512i words = _mm512_permutexvar_epi8(first, _mm512_castsi128_si512(bytes));
    const __m512i scaled = AddToExponent(table, ExponentOf(scale[k / 32]));
    _mm512_storeu_si512(y + k, _mm512_permutexvar_epi16(_mm512_srlv_epi16(words, shift), scaled));
  }
}

// The upper halves of n floats; exact for floats on the bf16 grid, and NaN stays NaN.
static inline void UpperHalves(const float* x, int64_t n, uint16_t* y) {
  for (int64_t k = 0; k < n; k += 16) {
    const IntVec bits = ShiftRight<16>(Bits(Load(x + k)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + k), _mm512_cvtepi32_epi16(bits));
  }
}
