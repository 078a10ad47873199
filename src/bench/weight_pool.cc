#include "bench/weight_pool.h"

#include <cstring>

#include "base/check.h"
#include "bench/timing.h"

namespace deepinfer {
namespace {

constexpr int64_t kAlign = 512;

int64_t RoundUp(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

int64_t RowDataBytes(DType dtype, int64_t cols) {
  switch (dtype) {
    case DType::kBf16:
      return 2 * cols;
    case DType::kF32:
      return 4 * cols;
    case DType::kFp4Row32:
      return cols / 2;
    case DType::kFp8Tile32:
    case DType::kFp8Row32:
      return cols;
  }
  return 0;
}

int64_t NumScaleRows(DType dtype, int64_t rows) {
  if (dtype == DType::kBf16 || dtype == DType::kF32) return 0;
  return dtype == DType::kFp8Tile32 ? (rows + 31) / 32 : rows;
}

// Calls write(word) with a random word for every 8 bytes of [data, data + bytes).
template <class Map>
void FillWords(uint64_t seed, uint8_t* data, int64_t bytes, Map map) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
  for (int64_t i = 0; i < bytes; i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // xorshift
    const uint64_t word = map(state);
    std::memcpy(data + i, &word, static_cast<size_t>(bytes - i < 8 ? bytes - i : 8));
  }
}

void FillScales(uint64_t seed, uint8_t* data, int64_t bytes) {
  FillWords(seed, data, bytes,
            [](uint64_t r) { return (r & 0x0f0f0f0f0f0f0f0fu) + 0x7777777777777777u; });
}

}  // namespace

int64_t MatrixBytes(DType dtype, int64_t rows, int64_t cols) {
  return RoundUp(rows * RowDataBytes(dtype, cols)) +
         RoundUp(NumScaleRows(dtype, rows) * (cols / 32));
}

void FillWeights(DType dtype, uint64_t seed, uint8_t* data, int64_t bytes) {
  switch (dtype) {
    case DType::kFp4Row32:
      return FillWords(seed, data, bytes, [](uint64_t r) { return r; });
    case DType::kFp8Tile32:
    case DType::kFp8Row32:
      return FillWords(seed, data, bytes, [](uint64_t r) {
        const uint64_t carry = (r & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;
        return r ^ ((carry & 0x8080808080808080u) >> 7);  // 0x7f and 0xff become 0x7e and 0xfe
      });
    case DType::kBf16:
      return FillWords(seed, data, bytes, [](uint64_t r) {
        return (r & 0x83ff83ff83ff83ffu) | 0x3c003c003c003c00u;  // exponents -7 ... 0
      });
    case DType::kF32:
      return FillWords(seed, data, bytes,
                       [](uint64_t r) { return (r & 0x83ffffff83ffffffu) | 0x3c0000003c000000u; });
  }
}

WeightPool::WeightPool(int64_t bytes, Team& team) : team_(team), arena_("weights", RoundUp(bytes)) {
  SlowestSeconds(team_, [&](Work work) {
    const Span part = SplitWork(arena_.bytes(), kAlign, work);
    FillWeights(DType::kFp4Row32, static_cast<uint64_t>(work.tid),
                reinterpret_cast<uint8_t*>(arena_.base()) + part.begin, part.end - part.begin);
  });
}

std::vector<WeightView> WeightPool::Matrices(DType dtype, int64_t rows, int64_t cols,
                                             int64_t count) {
  const int64_t each = MatrixBytes(dtype, rows, cols);
  const int64_t data_bytes = RoundUp(rows * RowDataBytes(dtype, cols));
  DI_CHECK(count * each <= arena_.bytes());
  uint8_t* base = reinterpret_cast<uint8_t*>(arena_.base());
  std::vector<WeightView> views;
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* data = base + i * each;
    const bool scaled = each > data_bytes;
    views.push_back({.data = data,
                     .scale = scaled ? data + data_bytes : nullptr,
                     .dtype = dtype,
                     .rows = rows,
                     .cols = cols,
                     .row_stride_bytes = RowDataBytes(dtype, cols),
                     .scale_stride_bytes = scaled ? cols / 32 : 0,
                     .scale_row0 = 0});
  }
  SlowestSeconds(team_, [&](Work work) {
    const Span part = SplitWork(count, 1, work);
    for (int64_t i = part.begin; i < part.end; ++i) {
      const uint64_t seed = static_cast<uint64_t>(i);
      FillWeights(dtype, 2 * seed, base + i * each, data_bytes);
      FillScales(2 * seed + 1, base + i * each + data_bytes, each - data_bytes);
    }
  });
  return views;
}

}  // namespace deepinfer
