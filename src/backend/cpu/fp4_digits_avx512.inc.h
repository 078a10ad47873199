// The loops of fp4_digits.inc.h for AVX-512 VNNI. Included inside namespace
// deepinfer::cpu::avx512::digits, after
// fp4_digit_groups.inc.h.

constexpr int kParts = 1;    // vectors that the 16 lanes of a group fill
constexpr int kFewRows = 0;  // see fp4_digits.inc.h

// The bytes of a group of a weight row, vector v as vector v of DigitGroup, and the scales of its
// lanes.
struct WeightPart {
  __m512i bytes[8];
  Vec scale;
};

// 2^(byte - 127) of 16 blocks, each in its lane; byte 0 is a subnormal float, 255 NaN.
static inline Vec DecodeScales(__m128i bytes) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i s = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(bytes, order));
  const __mmask16 special = _mm512_testn_epi32_mask(AddInt(s, SetInt(1)), SetInt(254));  // 0, 255
  const __m512i bits = ShiftLeft<23>(s);
  return FromBits(_mm512_mask_or_epi32(bits, special, bits, SetInt(0x400000)));
}

// Of the 64 bytes at p the first n.
static inline __m512i LoadFirstBytes(const uint8_t* p, int64_t n) {
  if (n >= 64) return _mm512_loadu_si512(p);
  return _mm512_maskz_loadu_epi8(n <= 0 ? 0 : (1ull << n) - 1, p);
}

// A group of which only the first n blocks exist; kWhole: all 16. The look-up reads six bits of an
// index, and the table holds the sixteen values four times: the neighbour of a code does no harm.
template <bool kWhole>
__attribute__((always_inline)) static inline WeightPart DecodePart(const uint8_t* codes,
                                                                   const uint8_t* scales, int,
                                                                   int64_t n) {
  const __m512i table = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  __m512i l[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    l[i] = kWhole ? _mm512_loadu_si512(codes + 64 * i)
                  : LoadFirstBytes(codes + 64 * i, 16 * n - 64 * i);
  }
  const __m512i low01 = _mm512_unpacklo_epi32(l[0], l[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(l[0], l[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(l[2], l[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(l[2], l[3]);
  const __m512i dwords[4] = {
      _mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
      _mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23)};
  WeightPart w;
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) {
    w.bytes[2 * d] = _mm512_permutexvar_epi8(dwords[d], table);
    w.bytes[2 * d + 1] = _mm512_permutexvar_epi8(ShiftRight<4>(dwords[d]), table);
  }
  const __m128i one = _mm_set1_epi8(127);
  const auto mask = static_cast<__mmask16>(kWhole ? 0xffff : (1u << n) - 1);
  w.scale = DecodeScales(kWhole ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales))
                                : _mm_mask_loadu_epi8(one, mask, scales));
  return w;
}

// The blocks of a group of x times those of a weight row, each in its lane.
__attribute__((always_inline)) static inline Vec MultiplyPart(const WeightPart& w,
                                                              const DigitGroup& x, int) {
  __m512i t[3] = {_mm512_load_si512(x.correction), SetInt(0), SetInt(0)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      t[i] = _mm512_dpbusd_epi32(t[i], w.bytes[v], _mm512_load_si512(x.digit[i][v]));
    }
  }
  const __m512i upper = AddInt(t[1], ShiftLeft<kDigitBits>(t[2]));
  return ToFloat(AddInt(t[0], ShiftLeft<kDigitBits>(upper))) * Load(x.scale);
}

static inline float SumLanes(const Vec (&lanes)[kParts]) { return Sum(lanes[0]); }
