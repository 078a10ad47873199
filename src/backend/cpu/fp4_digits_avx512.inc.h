// The loops of fp4_digits.inc.h for AVX-512 VNNI. Included inside namespace
// deepinfer::cpu::avx512::digits, after row_codec.inc.h.

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

typedef Vec LaneSums;

static inline float SumLanes(LaneSums lanes) { return Sum(lanes); }

// 2^(byte - 127) of 16 blocks, each in its lane; byte 0 is a subnormal float, 255 NaN.
static inline Vec DecodeScales(const uint8_t* p) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m512i s = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(bytes, order));
  const __mmask16 special = _mm512_testn_epi32_mask(AddInt(s, SetInt(1)), SetInt(254));  // 0, 255
  const __m512i bits = ShiftLeft<23>(s);
  return FromBits(_mm512_mask_or_epi32(bits, special, bits, SetInt(0x400000)));
}

static inline void DecodeGroup(const uint8_t* codes, const uint8_t* scales, WeightGroup* out) {
  const __m512i table = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m512i low = _mm512_set1_epi8(15);
  const __m512i l0 = _mm512_loadu_si512(codes), l1 = _mm512_loadu_si512(codes + 64);
  const __m512i l2 = _mm512_loadu_si512(codes + 128), l3 = _mm512_loadu_si512(codes + 192);
  const __m512i low01 = _mm512_unpacklo_epi32(l0, l1), high01 = _mm512_unpackhi_epi32(l0, l1);
  const __m512i low23 = _mm512_unpacklo_epi32(l2, l3), high23 = _mm512_unpackhi_epi32(l2, l3);
  const __m512i dwords[4] = {
      _mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
      _mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23)};
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) {
    const __m512i even = And(dwords[d], low), odd = And(ShiftRight<4>(dwords[d]), low);
    _mm512_store_si512(out->bytes[2 * d], _mm512_shuffle_epi8(table, even));
    _mm512_store_si512(out->bytes[2 * d + 1], _mm512_shuffle_epi8(table, odd));
  }
  Store(out->scale, DecodeScales(scales));
}

static inline LaneSums AddGroup(const __m512i (&t)[3], Vec unit, Vec scale, LaneSums sums) {
  const __m512i upper = AddInt(t[1], ShiftLeft<8>(t[2]));
  return Fma(ToFloat(AddInt(t[0], ShiftLeft<8>(upper))) * unit, scale, sums);
}

// Two weight rows times a group of one row of x.
static inline void MultiplyGroup(const WeightGroup* w, const DigitGroup& x, LaneSums* sums) {
  const __m512i correction = _mm512_load_si512(x.correction);
  __m512i t[2][3] = {{correction, SetInt(0), SetInt(0)}, {correction, SetInt(0), SetInt(0)}};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    const __m512i w0 = _mm512_load_si512(w[0].bytes[v]), w1 = _mm512_load_si512(w[1].bytes[v]);
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const __m512i digit = _mm512_load_si512(x.digit[i][v]);
      t[0][i] = _mm512_dpbusd_epi32(t[0][i], w0, digit);
      t[1][i] = _mm512_dpbusd_epi32(t[1][i], w1, digit);
    }
  }
  const Vec unit = Load(x.scale);
  sums[0] = AddGroup(t[0], unit, Load(w[0].scale), sums[0]);
  sums[1] = AddGroup(t[1], unit, Load(w[1].scale), sums[1]);
}
