// Packed cache rows to bf16, scale included. Included inside namespace deepinfer::cpu::amx, after
// bf16_codes.inc.h. Every stored value is a bf16 value: at most six significant bits.

// The sixteen values of a Q4e block under each of the 256 scales.
struct Q4eTable {
  uint16_t word[256][16];
};

static constexpr Q4eTable MakeQ4eTable() {
  constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  Q4eTable t{};
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    float scale = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) * 0x1p-9f;
    for (int i = 1; i < exponent; ++i) scale *= 2;
    const bool nan = (byte & 0x7f) == 0x7f;
    for (int code = 0; code < 16; ++code) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, kMagnitudes[code & 7] * scale);
      const uint32_t sign = (byte >> 7 ^ code >> 3) != 0 ? 0x8000 : 0;
      t.word[byte][code] = static_cast<uint16_t>(nan ? 0x7fc0 : bits >> 16 | sign);
    }
  }
  return t;
}

alignas(64) static constexpr Q4eTable kQ4eTable = MakeQ4eTable();

// n columns, a multiple of 32: one register look-up in the tables of two scales.
static inline void Q4eToBf16(const uint8_t* codes, const uint8_t* scale, int64_t n, uint16_t* y) {
  const __m512i spread =
      _mm512_cvtepu8_epi16(_mm256_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9,
                                            9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15));
  const __m512i shift = _mm512_set1_epi32(4 << 16);  // odd columns: the upper four bits
  const __m512i nibble = _mm512_set1_epi16(15);
  const __m512i second = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
  for (int64_t k = 0; k < n; k += 32) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + k / 2));
    const __m512i words = _mm512_permutexvar_epi8(spread, _mm512_castsi128_si512(bytes));
    // (words >> shift & nibble) | second
    const __m512i index =
        _mm512_ternarylogic_epi32(_mm512_srlv_epi16(words, shift), nibble, second, 0xea);
    const uint16_t* table0 = kQ4eTable.word[scale[k / 16]];
    const uint16_t* table1 = kQ4eTable.word[scale[k / 16 + 1]];
    const __m512i table = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_load_si256(reinterpret_cast<const __m256i*>(table0))),
        _mm256_load_si256(reinterpret_cast<const __m256i*>(table1)), 1);
    _mm512_storeu_si512(y + k, _mm512_permutexvar_epi16(index, table));
  }
}

// A packed row of `cols` columns, a multiple of 32; writes `cols` words rounded up to a multiple of
// 64.
static inline void RowToBf16(RowFormat format, const uint8_t* row, int64_t cols, uint16_t* y) {
  if (format == RowFormat::kFp4Block16) return Q4eToBf16(row, row + cols / 2, cols, y);
  const bool fp8 = format == RowFormat::kFp8Block32;
  const uint8_t* scale = row + (fp8 ? cols : cols / 2);
  if (ScalesAreModerate(scale, cols / 32)) {
    if (!fp8) return Fp4ToBf16(row, scale, cols, y);
    if (Fp8ToBf16(row, scale, cols, false, y)) return;
  }
  alignas(64) float values[32];
  for (int64_t c = 0; c < cols; c += 32) {
    DecodeColumns(format, row, cols, c, 32, values);
    UpperHalves(values, 32, y + c);
  }
}
