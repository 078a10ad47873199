#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ops/ref/reference.h"

namespace deepinfer::ref {

float LoadBf16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return Bf16ToFloat(bits);
}

float LoadF32(const uint8_t* p) {
  float value;
  std::memcpy(&value, p, 4);
  return value;
}

namespace {

// NaN if a value is NaN.
float LargestMagnitude(const float* x, int64_t n, float floor) {
  float largest = floor;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return x[i];
    largest = std::max(largest, std::fabs(x[i]));
  }
  return largest;
}

void SetNibble(uint8_t* codes, int64_t i, uint8_t code) {
  uint8_t& byte = codes[i / 2];
  byte = i % 2 == 0 ? static_cast<uint8_t>((byte & 0xf0) | code)
                    : static_cast<uint8_t>((byte & 0x0f) | (code << 4));
}

float GetNibble(const uint8_t* codes, int64_t i) {
  return E2m1ToFloat(i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4);
}

uint8_t PowerOfTwoScale(float amax_over_max) {
  if (std::isnan(amax_over_max)) return 255;
  return static_cast<uint8_t>(std::clamp(CeilLog2(amax_over_max) + 127, 0, 254));
}

void EncodeFp8(const float* x, int64_t cols, float fp8_max, uint8_t* row) {
  for (int64_t b = 0; b < cols / 32; ++b) {
    const float amax = LargestMagnitude(x + 32 * b, 32, 1e-4f);
    const uint8_t scale = PowerOfTwoScale(amax * (1.0f / fp8_max));
    row[cols + b] = scale;
    for (int64_t i = 32 * b; i < 32 * b + 32; ++i) row[i] = FloatToE4m3(x[i] / Ue8m0ToFloat(scale));
  }
}

void EncodeIndexFp4(const float* x, int64_t cols, uint8_t* row) {
  for (int64_t b = 0; b < cols / 32; ++b) {
    const float amax = LargestMagnitude(x + 32 * b, 32, 6.0f * 0x1p-126f);
    const uint8_t scale = PowerOfTwoScale(amax * (1.0f / 6.0f));
    row[cols / 2 + b] = scale;
    for (int64_t i = 32 * b; i < 32 * b + 32; ++i) {
      SetNibble(row, i, FloatToE2m1(x[i] / Ue8m0ToFloat(scale)));
    }
  }
}

void EncodeKvFp4(const float* x, int64_t cols, uint8_t* row) {
  for (int64_t b = 0; b < cols / 16; ++b) {
    const float amax = LargestMagnitude(x + 16 * b, 16, 6.0f * 0x1p-9f);
    const uint8_t scale = FloatToE4m3(amax / 6.0f);
    row[cols / 2 + b] = scale;
    for (int64_t i = 16 * b; i < 16 * b + 16; ++i) {
      SetNibble(row, i, FloatToE2m1(x[i] / E4m3ToFloat(scale)));
    }
  }
}

}  // namespace

void EncodeRow(RowFormat format, const float* x, int64_t cols, float fp8_max, uint8_t* row) {
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(row, x, static_cast<size_t>(cols) * 4);
      return;
    case RowFormat::kFp8Block32:
      return EncodeFp8(x, cols, fp8_max, row);
    case RowFormat::kFp4Block32:
      return EncodeIndexFp4(x, cols, row);
    case RowFormat::kFp4Block16:
      return EncodeKvFp4(x, cols, row);
  }
}

void DecodeRow(RowFormat format, const uint8_t* row, int64_t cols, float* y) {
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(y, row, static_cast<size_t>(cols) * 4);
      return;
    case RowFormat::kFp8Block32:
      for (int64_t i = 0; i < cols; ++i)
        y[i] = E4m3ToFloat(row[i]) * Ue8m0ToFloat(row[cols + i / 32]);
      return;
    case RowFormat::kFp4Block32:
      for (int64_t i = 0; i < cols; ++i)
        y[i] = GetNibble(row, i) * Ue8m0ToFloat(row[cols / 2 + i / 32]);
      return;
    case RowFormat::kFp4Block16:
      for (int64_t i = 0; i < cols; ++i)
        y[i] = GetNibble(row, i) * E4m3ToFloat(row[cols / 2 + i / 16]);
      return;
  }
}

void QuantRows(const QuantRowsArgs& a, Work w) {
  const Span part = SplitColumns(a.cols, w);
  const int64_t block = a.format == RowFormat::kFp4Block16 ? 16 : 32;
  uint8_t packed[32 + 1];  // one block: at most 32 codes and a scale
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t i = r * a.cols + part.begin; i < r * a.cols + part.end; i += block) {
      EncodeRow(a.format, a.x + i, block, a.fp8_max, packed);
      DecodeRow(a.format, packed, block, a.y + i);
    }
  }
}

void StoreRows(const StoreRowsArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  const int64_t scales = a.format == RowFormat::kF32          ? 0
                         : a.format == RowFormat::kFp4Block16 ? 2
                                                              : 1;
  const int64_t codes = RowBytes(a.format, 32) - scales;  // bytes of 32 columns
  for (int64_t r = part.begin; r < part.end; ++r) {
    const float* x = a.x + r * a.cols;
    uint8_t* row = a.cache + a.slots[r] * RowBytes(a.format, a.cols);
    const float inverse = a.norm_weight != nullptr ? InverseRms(x, a.cols, a.eps) : 1.0f;
    for (int64_t c = 0; c < a.cols; c += 32) {
      const int64_t n = std::min<int64_t>(32, a.cols - c);  // less than 32 only for kF32
      float block[32];
      uint8_t packed[sizeof block];
      std::copy_n(x + c, n, block);
      for (int64_t i = 0; a.norm_weight != nullptr && i < n; ++i) {
        const float weight = LoadBf16(a.norm_weight + 2 * (c + i));
        block[i] = RoundIf(a.round, weight * (block[i] * inverse));
      }
      if (a.rope.cos != nullptr) RotateHead(a.rope, r, false, a.round, a.cols, c, c + n, block);
      EncodeRow(a.format, block, n, a.fp8_max, packed);
      std::memcpy(row + c / 32 * codes, packed,
                  static_cast<size_t>(RowBytes(a.format, n) - scales));
      std::memcpy(row + a.cols / 32 * codes + c / 32 * scales, packed + codes,
                  static_cast<size_t>(scales));
    }
  }
}

void GatherRows(const GatherRowsArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r) {
    std::memcpy(a.y + r * a.cols, a.x + int64_t{a.rows[r]} * a.cols,
                sizeof(float) * static_cast<size_t>(a.cols));
  }
}

}  // namespace deepinfer::ref
