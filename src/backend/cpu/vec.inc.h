// One vector of floats: 8 lanes with AVX2, 16 with AVX-512. Included inside namespace
// deepinfer::cpu::<isa>.
//
// Vec and IntVec are the compiler's own vector types, so + - * / work on Vec. Nothing contracts a *
// b + c: where one rounding is wanted the code says Fma. Functions named ...First touch only the
// first n lanes in memory (n may be larger than the vector: then all of them) and read the others
// as zero; masked lanes never fault.

// The sum of all lanes, always in the same order: halves onto each other until one lane is left.
static inline float SumOf4(__m128 a) {
  a = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}
static inline float SumOf8(__m256 a) {
  return SumOf4(_mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
}

#if defined(__AVX512F__)

typedef __m512 Vec;
typedef __m512i IntVec;
typedef __mmask16 Mask;
constexpr int kLanes = 16;

static inline Vec Set(float x) { return _mm512_set1_ps(x); }
static inline IntVec SetInt(int32_t x) { return _mm512_set1_epi32(x); }
static inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
static inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
static inline void StorePastCaches(float* p, Vec v) { _mm512_stream_ps(p, v); }

static inline Mask FirstLanes(int64_t n) {
  return static_cast<Mask>(n >= kLanes ? 0xffff : (1u << n) - 1);
}
static inline Vec LoadFirst(const float* p, int64_t n) {
  if (n >= kLanes) return Load(p);
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
static inline void StoreFirst(float* p, Vec v, int64_t n) {
  if (n >= kLanes) return Store(p, v);
  _mm512_mask_storeu_ps(p, FirstLanes(n), v);
}

static inline Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline Vec Sqrt(Vec a) { return _mm512_sqrt_ps(a); }
// b if one of them is NaN.
static inline Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
static inline Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
static inline Vec RoundToInteger(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline Mask Less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline Mask IsNan(Vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline Vec Select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no, yes); }

static inline uint32_t LaneBits(Mask m) { return m; }  // bit i: lane i

static inline IntVec Bits(Vec a) { return _mm512_castps_si512(a); }
static inline Vec FromBits(IntVec a) { return _mm512_castsi512_ps(a); }
static inline IntVec ToInt(Vec a) { return _mm512_cvtps_epi32(a); }
static inline Vec ToFloat(IntVec a) { return _mm512_cvtepi32_ps(a); }
static inline IntVec And(IntVec a, IntVec b) { return _mm512_and_si512(a, b); }
static inline IntVec Or(IntVec a, IntVec b) { return _mm512_or_si512(a, b); }
static inline IntVec Xor(IntVec a, IntVec b) { return _mm512_xor_si512(a, b); }
static inline IntVec AddInt(IntVec a, IntVec b) { return _mm512_add_epi32(a, b); }
static inline IntVec SubInt(IntVec a, IntVec b) { return _mm512_sub_epi32(a, b); }
template <int kCount>
static inline IntVec ShiftLeft(IntVec a) {
  return _mm512_slli_epi32(a, kCount);
}
template <int kCount>
static inline IntVec ShiftRight(IntVec a) {  // fills with zeros
  return _mm512_srli_epi32(a, kCount);
}

// a * 2^n for whole n, rounded once.
static inline Vec ScaleByPowerOfTwo(Vec a, Vec n) { return _mm512_scalef_ps(a, n); }

static inline float Sum(Vec a) {
  return SumOf8(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}
// Two quarters of a and of b, in that order, plus the two others.
template <int kLow, int kHigh>
static inline Vec AddHalves(Vec a, Vec b) {
  return _mm512_shuffle_f32x4(a, b, kLow) + _mm512_shuffle_f32x4(a, b, kHigh);
}
// Lane i = Sum(v[i]), the same additions.
static inline Vec SumEach(const Vec (&v)[16]) {
  Vec four[4], two[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Vec first = AddHalves<0x44, 0xee>(v[i], v[i + 4]);
    const Vec second = AddHalves<0x44, 0xee>(v[i + 8], v[i + 12]);
    four[i] = AddHalves<0x88, 0xdd>(first, second);
  }
  // Every 128-bit lane k of four[i] belongs to vector 4 * k + i: lanes 0 + 2 and 1 + 3, then 0
  // + 1.
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    two[i] = _mm512_shuffle_ps(four[i], four[i + 2], 0x44) +
             _mm512_shuffle_ps(four[i], four[i + 2], 0xee);
  }
  // two[0] holds, in pairs, vectors 0 and 2 (+ 4 * k), two[1] vectors 1 and 3.
  const Vec sums =
      _mm512_shuffle_ps(two[0], two[1], 0x88) + _mm512_shuffle_ps(two[0], two[1], 0xdd);
  return _mm512_permute_ps(sums, 0xd8);
}
// Rows become columns.
static inline void TransposeLanes(Vec (&v)[16]) {
  Vec a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  // b[4 * g + c]: of each 128-bit lane, column c of rows 4 * g ... 4 * g + 3.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const Vec low01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
    const Vec high01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
    const Vec low23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
    const Vec high23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
    v[c] = _mm512_shuffle_f32x4(low01, low23, 0x88);
    v[4 + c] = _mm512_shuffle_f32x4(high01, high23, 0x88);
    v[8 + c] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
    v[12 + c] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
  }
}
// Sum of each of four vectors.
static inline __m128 SumsOfFour(Vec a, Vec b, Vec c, Vec d) {
  const Vec ab = _mm512_shuffle_f32x4(a, b, 0x44) + _mm512_shuffle_f32x4(a, b, 0xee);
  const Vec cd = _mm512_shuffle_f32x4(c, d, 0x44) + _mm512_shuffle_f32x4(c, d, 0xee);
  const Vec four = _mm512_shuffle_f32x4(ab, cd, 0x88) + _mm512_shuffle_f32x4(ab, cd, 0xdd);
  const Vec two = four + _mm512_permute_ps(four, 0xee);
  const Vec one = two + _mm512_movehdup_ps(two);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), one));
}
static inline float FirstLane(Vec a) { return _mm512_cvtss_f32(a); }
static inline float Largest(Vec a) { return _mm512_reduce_max_ps(a); }

// kLanes bf16 values from any address.
static inline Vec LoadBf16First(const uint8_t* p, int64_t n) {
  const __m256i half = _mm256_maskz_loadu_epi16(FirstLanes(n), p);
  return FromBits(ShiftLeft<16>(_mm512_cvtepu16_epi32(half)));
}
// fp16 bits in 16-bit lanes to float.
static inline Vec FromHalf(__m256i half) { return _mm512_cvtph_ps(half); }
static inline __m256i LoadBytesAs16(const uint8_t* p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
static inline __m256i AsFp16Bits(__m256i e4m3) {
  return _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(e4m3, 8), 1),
                          _mm256_set1_epi16(static_cast<int16_t>(0xbfff)));
}
// kLanes 4-bit codes, low nibble first, each into its own 32-bit lane.
static inline IntVec LoadNibbles(const uint8_t* p) {
  const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i nibbles =
      _mm_and_si128(_mm_or_si128(wide, _mm_slli_epi16(wide, 4)), _mm_set1_epi8(15));
  return _mm512_cvtepu8_epi32(nibbles);
}
// table[code & 7] for the magnitudes of e2m1.
static inline Vec LookUp8(const float* table, IntVec code) {
  return _mm512_permutexvar_ps(And(code, SetInt(7)),
                               _mm512_castps256_ps512(_mm256_loadu_ps(table)));
}
// The lowest byte of every lane.
static inline void StoreBytes(uint8_t* p, IntVec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}

// p[0] p[0] p[1] p[1] ...: the first n / 2 floats of p, each twice.
static inline Vec LoadTwiceFirst(const float* p, int64_t n) {
  const IntVec index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(index, LoadFirst(p, n >= kLanes ? kLanes / 2 : n / 2));
}
static inline Vec SwapPairs(Vec a) { return _mm512_permute_ps(a, 0xb1); }
static inline IntVec EvenSigns() {  // the sign bit in lanes 0, 2, 4, ...
  return _mm512_set1_epi64(0x80000000);
}

#else  // AVX2

typedef __m256 Vec;
typedef __m256i IntVec;
typedef __m256 Mask;  // all bits of a lane, or none
constexpr int kLanes = 8;

static inline Vec Set(float x) { return _mm256_set1_ps(x); }
static inline IntVec SetInt(int32_t x) { return _mm256_set1_epi32(x); }
static inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
static inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
static inline void StorePastCaches(float* p, Vec v) { _mm256_stream_ps(p, v); }

static inline IntVec FirstLanes(int64_t n) {
  const IntVec lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(SetInt(static_cast<int32_t>(n < kLanes ? n : kLanes)), lane);
}
static inline Vec LoadFirst(const float* p, int64_t n) {
  if (n >= kLanes) return Load(p);
  return _mm256_maskload_ps(p, FirstLanes(n));
}
static inline void StoreFirst(float* p, Vec v, int64_t n) {
  if (n >= kLanes) return Store(p, v);
  _mm256_maskstore_ps(p, FirstLanes(n), v);
}

static inline Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline Vec Sqrt(Vec a) { return _mm256_sqrt_ps(a); }
// b if one of them is NaN.
static inline Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
static inline Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
static inline Vec RoundToInteger(Vec a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline Mask Less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline Mask IsNan(Vec a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
static inline Vec Select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m); }

static inline uint32_t LaneBits(Mask m) {  // bit i: lane i
  return static_cast<uint32_t>(_mm256_movemask_ps(m));
}

static inline IntVec Bits(Vec a) { return _mm256_castps_si256(a); }
static inline Vec FromBits(IntVec a) { return _mm256_castsi256_ps(a); }
static inline IntVec ToInt(Vec a) { return _mm256_cvtps_epi32(a); }
static inline Vec ToFloat(IntVec a) { return _mm256_cvtepi32_ps(a); }
static inline IntVec And(IntVec a, IntVec b) { return _mm256_and_si256(a, b); }
static inline IntVec Or(IntVec a, IntVec b) { return _mm256_or_si256(a, b); }
static inline IntVec Xor(IntVec a, IntVec b) { return _mm256_xor_si256(a, b); }
static inline IntVec AddInt(IntVec a, IntVec b) { return _mm256_add_epi32(a, b); }
static inline IntVec SubInt(IntVec a, IntVec b) { return _mm256_sub_epi32(a, b); }
template <int kCount>
static inline IntVec ShiftLeft(IntVec a) {
  return _mm256_slli_epi32(a, kCount);
}
template <int kCount>
static inline IntVec ShiftRight(IntVec a) {  // fills with zeros
  return _mm256_srli_epi32(a, kCount);
}

// a * 2^n for whole n between -252 and 254, rounded once: the first factor is exact for |a| near 1.
static inline Vec ScaleByPowerOfTwo(Vec a, Vec n) {
  const IntVec whole = ToInt(n), half = _mm256_srai_epi32(whole, 1);
  const Vec first = FromBits(ShiftLeft<23>(AddInt(half, SetInt(127))));
  const Vec second = FromBits(ShiftLeft<23>(AddInt(SubInt(whole, half), SetInt(127))));
  return a * first * second;
}

static inline float Sum(Vec a) { return SumOf8(a); }
// Lane i = Sum(v[i]), the same additions.
static inline Vec SumEach(const Vec (&v)[8]) {
  Vec four[4], two[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    four[i] =
        _mm256_permute2f128_ps(v[i], v[i + 4], 0x20) + _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    two[i] = _mm256_shuffle_ps(four[i], four[i + 2], 0x44) +
             _mm256_shuffle_ps(four[i], four[i + 2], 0xee);
  }
  const Vec sums =
      _mm256_shuffle_ps(two[0], two[1], 0x88) + _mm256_shuffle_ps(two[0], two[1], 0xdd);
  return _mm256_permute_ps(sums, 0xd8);
}
// Rows become columns.
static inline void TransposeLanes(Vec (&v)[8]) {
  Vec a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    v[c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x20);
    v[4 + c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x31);
  }
}
// Sum of each of four vectors.
static inline __m128 SumsOfFour(Vec a, Vec b, Vec c, Vec d) {
  const Vec ab = _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31);
  const Vec cd = _mm256_permute2f128_ps(c, d, 0x20) + _mm256_permute2f128_ps(c, d, 0x31);
  const Vec ab2 = ab + _mm256_permute_ps(ab, 0xee), cd2 = cd + _mm256_permute_ps(cd, 0xee);
  const Vec ac = _mm256_unpacklo_ps(ab2 + _mm256_movehdup_ps(ab2), cd2 + _mm256_movehdup_ps(cd2));
  return _mm_unpacklo_ps(_mm256_castps256_ps128(ac), _mm256_extractf128_ps(ac, 1));
}
static inline float FirstLane(Vec a) { return _mm256_cvtss_f32(a); }
static inline float Largest(Vec a) {
  __m128 m = _mm_max_ps(_mm256_extractf128_ps(a, 1), _mm256_castps256_ps128(a));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// kLanes bf16 values from any address.
static inline Vec LoadBf16First(const uint8_t* p, int64_t n) {
  __m128i half = _mm_setzero_si128();
  if (n >= kLanes) {
    half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  } else {
    memcpy(&half, p, static_cast<size_t>(2 * n));
  }
  return FromBits(ShiftLeft<16>(_mm256_cvtepu16_epi32(half)));
}
// fp16 bits in 16-bit lanes to float.
static inline Vec FromHalf(__m128i half) { return _mm256_cvtph_ps(half); }
static inline __m128i LoadBytesAs16(const uint8_t* p) {
  return _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
static inline __m128i AsFp16Bits(__m128i e4m3) {
  return _mm_and_si128(_mm_srai_epi16(_mm_slli_epi16(e4m3, 8), 1),
                       _mm_set1_epi16(static_cast<int16_t>(0xbfff)));
}
// kLanes 4-bit codes, low nibble first, each into its own 32-bit lane.
static inline IntVec LoadNibbles(const uint8_t* p) {
  int32_t bytes;
  memcpy(&bytes, p, 4);
  const IntVec shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  return And(_mm256_srlv_epi32(SetInt(bytes), shifts), SetInt(15));
}
// table[code & 7] for the magnitudes of e2m1.
static inline Vec LookUp8(const float* table, IntVec code) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), code);
}
// The lowest byte of every lane.
static inline void StoreBytes(uint8_t* p, IntVec a) {
  const IntVec pick = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  const IntVec packed = _mm256_shuffle_epi8(a, pick);
  const int32_t low = _mm256_extract_epi32(packed, 0), high = _mm256_extract_epi32(packed, 4);
  memcpy(p, &low, 4);
  memcpy(p + 4, &high, 4);
}

// p[0] p[0] p[1] p[1] ...: the first n / 2 floats of p, each twice.
static inline Vec LoadTwiceFirst(const float* p, int64_t n) {
  const IntVec index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm256_permutevar8x32_ps(LoadFirst(p, n >= kLanes ? kLanes / 2 : n / 2), index);
}
static inline Vec SwapPairs(Vec a) { return _mm256_permute_ps(a, 0xb1); }
static inline IntVec EvenSigns() {  // the sign bit in lanes 0, 2, 4, ...
  return _mm256_set1_epi64x(0x80000000);
}

#endif

// ---- the same for both ----

static inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Asks for n bytes. Inlined always: g++ 12 takes a function that only prefetches for one without
// effects and drops calls of it.
__attribute__((always_inline)) static inline void Prefetch(const uint8_t* p, int64_t n) {
  for (int64_t i = 0; i < n; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

static inline Vec Zero() { return Set(0.0f); }
static inline Vec Abs(Vec a) { return FromBits(And(Bits(a), SetInt(0x7fffffff))); }
static inline IntVec SignBit(Vec a) { return And(Bits(a), SetInt(INT32_MIN)); }

static inline float LoadF32(const uint8_t* p) {
  float value;
  memcpy(&value, p, 4);
  return value;
}

// To bf16 and back: nearest, ties to even. NaN stays NaN.
static inline Vec RoundBf16(Vec a) {
  const IntVec bits = Bits(a), odd = And(ShiftRight<16>(bits), SetInt(1));
  const IntVec upper = SetInt(static_cast<int32_t>(0xffff0000));
  const IntVec rounded = And(AddInt(bits, AddInt(odd, SetInt(0x7fff))), upper);
  const IntVec quiet = And(Or(bits, SetInt(0x400000)), upper);
  return Select(IsNan(a), FromBits(quiet), FromBits(rounded));
}
static inline Vec RoundIf(bool round, Vec a) { return round ? RoundBf16(a) : a; }
static inline void RoundInPlace(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    StoreFirst(x + i, RoundBf16(LoadFirst(x + i, n - i)), n - i);
  }
}

// e^x to about 1 ulp of fp32. NaN stays NaN; results below 2^-149 become 0, above the largest float
// infinity. x = n ln 2 + r, |r| <= ln 2 / 2: the series of e^r is cut after r^7 / 7!, whose
// successor is below 2^-27.
static inline Vec Exp(Vec x) {
  x = Min(Set(89.0f), Max(Set(-105.0f), x));
  const Vec n = RoundToInteger(x * Set(1.44269504f));
  Vec r = Fma(n, Set(-0x1.62e4p-1f), x);  // upper part of ln 2: its product with n is exact
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);   // lower part
  Vec p = Set(1.0f / 5040);
  p = Fma(p, r, Set(1.0f / 720));
  p = Fma(p, r, Set(1.0f / 120));
  p = Fma(p, r, Set(1.0f / 24));
  p = Fma(p, r, Set(1.0f / 6));
  p = Fma(p, r, Set(0.5f));
  p = Fma(p, r * r, r);
  return ScaleByPowerOfTwo(p + Set(1.0f), n);
}

// sum of x[i]^2: four accumulators, whatever the caller's rows or threads.
static inline float SumOfSquares(const float* x, int64_t n) {
  Vec sum[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const Vec v = Load(x + i + k * kLanes);
      sum[k] = Fma(v, v, sum[k]);
    }
  }
  for (; i < n; i += kLanes) {
    const Vec v = LoadFirst(x + i, n - i);
    sum[0] = Fma(v, v, sum[0]);
  }
  return Sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// 1 / sqrt(mean(x^2) + eps)
static inline float InverseRms(const float* x, int64_t n, float eps) {
  return 1.0f / sqrtf(SumOfSquares(x, n) / static_cast<float>(n) + eps);
}

// The part of a row that a thread works on when the columns of all rows are one list: row, and
// columns begin ... end.
struct RowPart {
  int64_t row, begin, end;
};

// The row part that starts at item `i` of the list and stays inside `span`.
static inline RowPart PartAt(int64_t i, int64_t cols, Span span) {
  const int64_t row = i / cols, begin = i % cols;
  return {row, begin, Smaller(cols, begin + span.end - i)};
}
