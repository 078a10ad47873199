// Checkpoint weights to floats, AVX2. Included inside namespace deepinfer::cpu::avx2, after
// row_codec.inc.h.
//
// Decoders of quantised weights take n columns, a multiple of 32 that share one scale each, and
// write n floats. Of the tensor they read exactly those columns.

// Twice the e4m3 rounding of half of every value, as codes. Only magnitudes below code 16 can
// change: they are code * 2^-9, and half of an odd code is a tie of the subnormal grid, so it goes
// to the nearest multiple of 4.
static inline __m256i HalveFp8(__m256i codes) {
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 0, 2, 4, 4, 4, 6, 8, 8, 8, 10, 12, 12, 12, 14, 16));
  const __m256i exponent = _mm256_and_si256(codes, _mm256_set1_epi8(0x70));
  const __m256i small = _mm256_cmpeq_epi8(exponent, _mm256_setzero_si256());
  const __m256i halved = _mm256_shuffle_epi8(table, _mm256_and_si256(codes, _mm256_set1_epi8(15)));
  const __m256i sign = _mm256_and_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
  return _mm256_blendv_epi8(codes, _mm256_or_si256(halved, sign), small);
}

struct Fp8Decoder {};
static inline Fp8Decoder MakeFp8Decoder() { return {}; }

// Is a code of 32 NaN?
static inline bool HasNanCode(__m256i codes) {
  const __m256i largest = _mm256_set1_epi8(0x7f);
  const __m256i nan = _mm256_cmpeq_epi8(_mm256_and_si256(codes, largest), largest);
  return _mm256_movemask_epi8(nan) != 0;
}

// 32 columns with one scale. A code shifted into fp16 means value * 2^-8, which the conversion
// makes a float exactly; the missing 2^8 goes to the scale where that is finite, and NaN codes take
// the way that knows them. Conversions from memory spare the shuffles that those of registers need.
static inline void DecodeFp8Codes(__m256i codes, float scale, Vec (&y)[4]) {
  alignas(32) uint8_t block[64];
  if (HasNanCode(codes) || !(scale < 0x1p120f)) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(block), codes);
    for (int i = 0; i < 4; ++i) y[i] = DecodeE4m3(block + 8 * i) * Set(scale);
    return;
  }
  const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xbfff));
  __m256i* halves = reinterpret_cast<__m256i*>(block);
  const __m256i first = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(codes));
  const __m256i second = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(codes, 1));
  _mm256_store_si256(halves, _mm256_and_si256(_mm256_slli_epi16(first, 7), mask));
  _mm256_store_si256(halves + 1, _mm256_and_si256(_mm256_slli_epi16(second, 7), mask));
  const Vec s = Set(scale * 256.0f);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = FromHalf(_mm_load_si128(reinterpret_cast<const __m128i*>(block) + i)) * s;
  }
}

static inline __m256i LoadCodes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

static inline void DecodeFp8(const uint8_t* codes, const uint8_t* scale, int64_t n, bool halved,
                             float* y) {
  for (int64_t k = 0; k < n; k += 32) {
    const __m256i c = LoadCodes(codes + k);
    Vec values[4];
    DecodeFp8Codes(halved ? HalveFp8(c) : c, DecodeUe8m0(scale[k / 32]), values);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) Store(y + k + 8 * i, values[i]);
  }
}

static inline void DecodeFp4(const uint8_t* codes, const uint8_t* scale, int64_t n, float* y) {
  for (int64_t k = 0; k < n; k += 32) {
    const Vec s = Set(DecodeUe8m0(scale[k / 32]));
    for (int i = 0; i < 32; i += kLanes) Store(y + k + i, DecodeE2m1(codes + (k + i) / 2) * s);
  }
}

// Is one of n bytes 255?
static inline bool HasByte255(const uint8_t* p, int64_t n) {
  const __m256i all = _mm256_set1_epi8(-1);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i));
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, all)) != 0) return true;
  }
  for (; i < n; ++i) {
    if (p[i] == 255) return true;
  }
  return false;
}

// ---- 32 whole columns at a time, for products of few rows ----

constexpr int kStep = 32;

// Codes of kStep columns times their scale.
static inline void LoadFp8Columns(const Fp8Decoder&, const uint8_t* codes, const float* scale,
                                  Vec (&y)[4]) {
  DecodeFp8Codes(LoadCodes(codes), *scale, y);
}
