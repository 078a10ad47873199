#include "model/planted_caches.h"

#include <cstring>

#include "base/random.h"
#include "model/forward.h"
#include "ops/rows.h"

namespace deepinfer {

namespace {

// Bytes (random & keep) + add.
void FillBytes(uint8_t* data, int64_t bytes, uint8_t keep, uint8_t add, uint64_t* state) {
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t random = NextRandom(state);
    for (int64_t j = i; j < bytes && j < i + 8; ++j) {
      data[j] = static_cast<uint8_t>(((random >> (8 * (j - i))) & keep) + add);
    }
  }
}

// Codes, then scales (ops/rows.h): a scale of 1 or 2 for fp8 codes below 2, around 1/4 for fp4.
void FillRow(uint8_t* row, RowFormat format, int64_t cols, uint64_t* state) {
  switch (format) {
    case RowFormat::kF32:
      for (int64_t i = 0; i < cols; ++i) {
        const float value = static_cast<float>(NextRandom(state) >> 40) * 0x1p-23f - 1.0f;
        std::memcpy(row + 4 * i, &value, 4);
      }
      return;
    case RowFormat::kFp8Block32:
      FillBytes(row, cols, 0xbf, 0, state);
      return FillBytes(row + cols, cols / 32, 1, 127, state);
    case RowFormat::kFp4Block32:
      FillBytes(row, cols / 2, 0xff, 0, state);
      return FillBytes(row + cols / 2, cols / 32, 1, 125, state);
    case RowFormat::kFp4Block16:
      FillBytes(row, cols / 2, 0xff, 0, state);
      return FillBytes(row + cols / 2, cols / 16, 0x0f, 0x28, state);  // e4m3 0.25 to 0.94
  }
}

void FillRows(uint8_t* rows, int64_t n, RowFormat format, int64_t cols, uint64_t* state) {
  for (int64_t r = 0; r < n; ++r) FillRow(rows + r * RowBytes(format, cols), format, cols, state);
}

}  // namespace

void FillCaches(const KvPool& kv, const ModelConfig& c, const Numerics& n, uint64_t seed) {
  const KvShape& shape = kv.shape();
  const RowFormat window = WindowFormat(n), compressed = CompressedFormat(n);
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
    FillRows(kv.window_rows(layer), kv.max_seqs() * shape.ring(), window, c.head_dim, &seed);
  }
  for (const KvShape::Owner& owner : shape.owners) {
    const int64_t rows = kv.n_blocks() * (kBlockTokens / owner.ratio);
    FillRows(kv.compressed_rows(owner.layer), rows, compressed, c.head_dim, &seed);
    FillRows(kv.index_rows(owner.layer), rows, IndexFormat(n), c.index_head_dim, &seed);
    if (owner.ratio == 1) continue;
    const int64_t raw = kv.max_seqs() * shape.raw_ring();
    for (float* ring : {kv.raw_kv(owner.layer), kv.raw_score(owner.layer)}) {
      FillRows(reinterpret_cast<uint8_t*>(ring), raw, RowFormat::kF32, shape.raw_cols, &seed);
    }
  }
}

}  // namespace deepinfer
