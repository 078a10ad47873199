// The loops of fp4_digits.inc.h for AVX2. Included inside namespace deepinfer::cpu::avx2::digits,
// after row_codec.inc.h. The 16 lanes of a group are two vectors; memory looks as for AVX-512.

constexpr int kGroupColumns = 512;  // 16 blocks, a lane each

// 512 activations. Vector 2d + odd of a digit: lane 4b + i holds that digit of columns 8d + odd,
// 8d + odd + 2, ... (four of them) of block 4i + b.
struct alignas(64) DigitGroup {
  int8_t digit[3][8][64];
  int32_t correction[16];  // -12 * sum of the block
  float scale[16];         // half of what a unit of the block is worth
};

// 512 weights of a row, as bytes 2w + 12, in the same order.
struct alignas(64) WeightGroup {
  uint8_t bytes[8][64];
  float scale[16];
};

struct LaneSums {
  Vec half[2];
};

static inline float SumLanes(const LaneSums& lanes) { return Sum(lanes.half[0] + lanes.half[1]); }

static inline __m256i LoadBytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

// 2^(byte - 127) of 8 blocks; byte 0 is a subnormal float, 255 NaN.
static inline Vec DecodeScales(__m128i bytes) {
  const IntVec s = _mm256_cvtepu8_epi32(bytes);
  const IntVec special =  // 0 and 255
      _mm256_cmpeq_epi32(And(AddInt(s, SetInt(1)), SetInt(254)), SetInt(0));
  return FromBits(Or(ShiftLeft<23>(s), And(special, SetInt(0x400000))));
}

static inline void DecodeGroup(const uint8_t* codes, const uint8_t* scales, WeightGroup* out) {
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m256i low = _mm256_set1_epi8(15);
  for (int h = 0; h < 64; h += 32) {
    const __m256i l0 = LoadBytes(codes + h), l1 = LoadBytes(codes + h + 64);
    const __m256i l2 = LoadBytes(codes + h + 128), l3 = LoadBytes(codes + h + 192);
    const __m256i low01 = _mm256_unpacklo_epi32(l0, l1), high01 = _mm256_unpackhi_epi32(l0, l1);
    const __m256i low23 = _mm256_unpacklo_epi32(l2, l3), high23 = _mm256_unpackhi_epi32(l2, l3);
    const __m256i dwords[4] = {
        _mm256_unpacklo_epi64(low01, low23), _mm256_unpackhi_epi64(low01, low23),
        _mm256_unpacklo_epi64(high01, high23), _mm256_unpackhi_epi64(high01, high23)};
#pragma GCC unroll 4
    for (int d = 0; d < 4; ++d) {
      const __m256i even = And(dwords[d], low), odd = And(ShiftRight<4>(dwords[d]), low);
      _mm256_store_si256(reinterpret_cast<__m256i*>(out->bytes[2 * d] + h),
                         _mm256_shuffle_epi8(table, even));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out->bytes[2 * d + 1] + h),
                         _mm256_shuffle_epi8(table, odd));
    }
  }
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m128i s =
      _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)), order);
  Store(out->scale, DecodeScales(s));
  Store(out->scale + 8, DecodeScales(_mm_srli_si128(s, 8)));
}

// Products of one digit, summed to 32 bits. A sum of two is at most 24 * 128 * 2, so four of them
// fit in 16 bits.
static inline IntVec DigitSum(const WeightGroup& w, const int8_t (&digit)[8][64], int h) {
  const __m256i one = _mm256_set1_epi16(1);
  __m256i pairs[8];
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    pairs[v] = _mm256_maddubs_epi16(LoadBytes(w.bytes[v] + h), LoadBytes(digit[v] + h));
  }
#pragma GCC unroll 2
  for (int v = 0; v < 8; v += 4) {
    pairs[v] = _mm256_add_epi16(_mm256_add_epi16(pairs[v], pairs[v + 1]),
                                _mm256_add_epi16(pairs[v + 2], pairs[v + 3]));
  }
  return AddInt(_mm256_madd_epi16(pairs[0], one), _mm256_madd_epi16(pairs[4], one));
}

// Two weight rows times a group of one row of x.
static inline void MultiplyGroup(const WeightGroup* w, const DigitGroup& x, LaneSums* sums) {
  for (int j = 0; j < 2; ++j) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int h = 32 * half, lane = 8 * half;
      const IntVec t0 = AddInt(DigitSum(w[j], x.digit[0], h), LoadBytes(x.correction + lane));
      const IntVec upper =
          AddInt(DigitSum(w[j], x.digit[1], h), ShiftLeft<8>(DigitSum(w[j], x.digit[2], h)));
      const Vec sum = ToFloat(AddInt(t0, ShiftLeft<8>(upper))) * Load(x.scale + lane);
      sums[j].half[half] = Fma(sum, Load(w[j].scale + lane), sums[j].half[half]);
    }
  }
}
