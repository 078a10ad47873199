// Quantises and decodes the stored rows of ops/rows.h, 32 columns at a time. Included inside
// namespace deepinfer::cpu::<isa>, after vec.inc.h. Bit for bit the values and bytes of
// ops/ref/rows.cc.

constexpr int kBlockVecs = 32 / kLanes;  // vectors in 32 columns

// ---- decoding ----

alignas(32) constexpr float kE2m1Magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

// kLanes e2m1 codes.
static inline Vec DecodeE2m1(const uint8_t* p) {
  const IntVec code = LoadNibbles(p);
  const IntVec sign = ShiftLeft<28>(And(code, SetInt(8)));
  return FromBits(Or(Bits(LookUp8(kE2m1Magnitudes, code)), sign));
}

// kLanes e4m3 codes: shifted into fp16 they mean value * 2^-8, subnormals included; 480 is the NaN
// code.
static inline Vec DecodeE4m3(const uint8_t* p) {
  const Vec value = FromHalf(AsFp16Bits(LoadBytesAs16(p))) * Set(256.0f);
  return Select(Less(Set(448.0f), Abs(value)), Set(NAN), value);
}

static inline float FloatFromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static inline float DecodeScalarE4m3(uint8_t code) {
  const uint32_t exponent = (code >> 3) & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return NAN;
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                        : FloatFromBits((exponent + 120) << 23 | mantissa << 20);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// 2^(byte - 127); byte 0 is a subnormal float, 255 NaN.
static inline float DecodeUe8m0(uint8_t byte) {
  return FloatFromBits(byte == 0 ? 0x400000 : byte == 255 ? 0x7fc00000 : uint32_t{byte} << 23);
}

// Columns [c, c + 32) of a stored row of `cols` columns, c a multiple of 32.
template <RowFormat kFormat>
static inline void DecodeBlock(const uint8_t* row, int64_t cols, int64_t c, float* y) {
  float scale[2];
  if (kFormat == RowFormat::kFp8Block32) {
    scale[0] = scale[1] = DecodeUe8m0(row[cols + c / 32]);
  } else if (kFormat == RowFormat::kFp4Block32) {
    scale[0] = scale[1] = DecodeUe8m0(row[cols / 2 + c / 32]);
  } else {
    scale[0] = DecodeScalarE4m3(row[cols / 2 + c / 16]);
    scale[1] = DecodeScalarE4m3(row[cols / 2 + c / 16 + 1]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kBlockVecs; ++v) {
    const int64_t i = c + v * kLanes;
    const Vec codes =
        kFormat == RowFormat::kFp8Block32 ? DecodeE4m3(row + i) : DecodeE2m1(row + i / 2);
    Store(y + v * kLanes, codes * Set(scale[v * kLanes / 16]));
  }
}

// Columns [c, c + n) of a stored row, c a multiple of 32 and n at most 32; less than 32 only for
// kF32.
static inline void DecodeColumns(RowFormat format, const uint8_t* row, int64_t cols, int64_t c,
                                 int64_t n, float* y) {
  switch (format) {
    case RowFormat::kF32:
      memcpy(y, row + 4 * c, static_cast<size_t>(n) * 4);
      return;
    case RowFormat::kFp8Block32:
      return DecodeBlock<RowFormat::kFp8Block32>(row, cols, c, y);
    case RowFormat::kFp4Block32:
      return DecodeBlock<RowFormat::kFp4Block32>(row, cols, c, y);
    case RowFormat::kFp4Block16:
      return DecodeBlock<RowFormat::kFp4Block16>(row, cols, c, y);
  }
}

// A whole row; `cols` is any number for kF32.
static inline void DecodeRow(RowFormat format, const uint8_t* row, int64_t cols, float* y) {
  for (int64_t c = 0; c < cols; c += 32) {
    DecodeColumns(format, row, cols, c, Smaller(32, cols - c), y + c);
  }
}

// Where row j of a sequence lies.
static inline const uint8_t* PagedRow(const PagedRows& p, int64_t seq, int64_t j,
                                      int64_t row_bytes) {
  const int64_t page = p.block_table[seq * p.table_stride + j / p.rows_per_page];
  return p.rows + (page * p.rows_per_page + j % p.rows_per_page) * row_bytes;
}

// ---- quantising ----

// Magnitudes rounded to nearest even on the grid of a small float: kMantissa bits, smallest normal
// 2^kMinExponent. Below it the spacing is that of the subnormals, where adding and taking away 1.5
// * 2^23 spacings rounds.
template <int kMantissa, int kMinExponent>
static inline Vec RoundToGrid(Vec m) {
  constexpr int kDropped = 23 - kMantissa;
  const IntVec odd = And(ShiftRight<kDropped>(Bits(m)), SetInt(1));
  const IntVec up = AddInt(Bits(m), AddInt(odd, SetInt((1 << (kDropped - 1)) - 1)));
  const Vec normal = FromBits(And(up, SetInt(-(1 << kDropped))));
  const Vec shift = Set(1.5f * static_cast<float>(1 << (23 + kMinExponent - kMantissa)));
  const Vec subnormal = (m + shift) - shift;
  const Vec smallest = Set(1.0f / static_cast<float>(1 << -kMinExponent));
  return Select(Less(m, smallest), subnormal, normal);
}

// The code, without sign, of magnitudes on that grid.
template <int kMantissa, int kMinExponent>
static inline IntVec GridCode(Vec m) {
  const IntVec normal =
      SubInt(ShiftRight<23 - kMantissa>(Bits(m)), SetInt((126 + kMinExponent) << kMantissa));
  const IntVec subnormal = ToInt(m * Set(static_cast<float>(1 << (kMantissa - kMinExponent))));
  const Vec smallest = Set(1.0f / static_cast<float>(1 << -kMinExponent));
  return Bits(Select(Less(m, smallest), FromBits(subnormal), FromBits(normal)));
}

static inline Vec RoundE4m3(Vec m) { return RoundToGrid<3, -6>(Min(Set(448.0f), m)); }
static inline IntVec CodeE4m3(Vec m) { return GridCode<3, -6>(m); }
static inline Vec RoundE2m1(Vec m) { return RoundToGrid<1, 0>(Min(Set(6.0f), m)); }
static inline IntVec CodeE2m1(Vec m) { return GridCode<1, 0>(m); }

// What 32 columns become: value = sign(x) * magnitude * scale.
struct QuantisedBlock {
  Vec magnitude[kBlockVecs];
  IntVec sign[kBlockVecs];  // bit 31
  float scale[2];           // of each half
  uint8_t scale_byte[2];
};

// max(floor, |x[0 ... n - 1]|), or NaN if a value is. n: a multiple of the lanes.
static inline float LargestMagnitude(const float* x, int64_t n, float floor) {
  Vec largest = Set(floor), nans = Zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec value = Load(x + i);
    largest = Max(Abs(value), largest);
    nans = nans + Select(IsNan(value), Set(1.0f), Zero());
  }
  return Sum(nans) > 0 ? NAN : Largest(largest);
}

// The byte of 2^ceil(log2(x)), x a positive normal float or NaN.
static inline uint8_t PowerOfTwoScale(float x) {
  if (x != x) return 255;
  uint32_t bits;
  memcpy(&bits, &x, 4);
  const uint32_t byte = (bits >> 23) + ((bits & 0x7fffff) != 0 ? 1 : 0);
  return static_cast<uint8_t>(byte < 254 ? byte : 254);
}

// The e4m3 code of a float between 2^-9 and 448.
static inline uint8_t EncodeScalarE4m3(float x) {
  uint8_t codes[kLanes];
  StoreBytes(codes, CodeE4m3(RoundE4m3(Set(x))));
  return codes[0];
}

static inline void ChooseScales(RowFormat format, const float* x, float fp8_max,
                                QuantisedBlock* q) {
  if (format == RowFormat::kFp4Block16) {
    for (int half = 0; half < 2; ++half) {
      const float amax = LargestMagnitude(x + 16 * half, 16, 6 * 0x1p-9f);
      q->scale_byte[half] = amax != amax ? 0x7f : EncodeScalarE4m3(amax / 6.0f);
      q->scale[half] = DecodeScalarE4m3(q->scale_byte[half]);
    }
    return;
  }
  const bool fp8 = format == RowFormat::kFp8Block32;
  const float amax = LargestMagnitude(x, 32, fp8 ? 1e-4f : 6 * 0x1p-126f);
  q->scale_byte[0] = PowerOfTwoScale(amax * (fp8 ? 1.0f / fp8_max : 1.0f / 6.0f));
  q->scale[0] = q->scale[1] = DecodeUe8m0(q->scale_byte[0]);
}

static inline void QuantiseBlock(RowFormat format, const float* x, float fp8_max,
                                 QuantisedBlock* q) {
  ChooseScales(format, x, fp8_max, q);
#pragma GCC unroll 4
  for (int v = 0; v < kBlockVecs; ++v) {
    const Vec value = Load(x + v * kLanes), m = Abs(value / Set(q->scale[v * kLanes / 16]));
    q->sign[v] = SignBit(value);
    q->magnitude[v] = format == RowFormat::kFp8Block32 ? RoundE4m3(m) : RoundE2m1(m);
  }
}

// y = the quantised values of 32 columns of x. x == y allowed.
static inline void QuantiseInto(RowFormat format, const float* x, float fp8_max, float* y) {
  QuantisedBlock q;
  QuantiseBlock(format, x, fp8_max, &q);
#pragma GCC unroll 4
  for (int v = 0; v < kBlockVecs; ++v) {
    const Vec value = FromBits(Or(Bits(q.magnitude[v]), q.sign[v]));
    Store(y + v * kLanes, value * Set(q.scale[v * kLanes / 16]));
  }
}

// Codes and scales of columns [c, c + 32) into a stored row of `cols` columns. Writes no other byte
// of the row.
static inline void EncodeBlock(RowFormat format, const float* x, float fp8_max, int64_t cols,
                               int64_t c, uint8_t* row) {
  QuantisedBlock q;
  QuantiseBlock(format, x, fp8_max, &q);
  uint8_t codes[32];
  if (format == RowFormat::kFp8Block32) {
    for (int v = 0; v < kBlockVecs; ++v) {
      StoreBytes(codes + v * kLanes, Or(CodeE4m3(q.magnitude[v]), ShiftRight<24>(q.sign[v])));
    }
    memcpy(row + c, codes, 32);
    row[cols + c / 32] = q.scale_byte[0];
    return;
  }
  for (int v = 0; v < kBlockVecs; ++v) {
    StoreBytes(codes + v * kLanes, Or(CodeE2m1(q.magnitude[v]), ShiftRight<28>(q.sign[v])));
  }
  for (int i = 0; i < 16; ++i) {
    row[c / 2 + i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
  if (format == RowFormat::kFp4Block32) {
    row[cols / 2 + c / 32] = q.scale_byte[0];
  } else {
    memcpy(row + cols / 2 + c / 16, q.scale_byte, 2);
  }
}
