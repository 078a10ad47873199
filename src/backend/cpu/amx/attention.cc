#include "backend/cpu/amx/kernels.h"

namespace deepinfer::cpu::amx {
// Each text uses those before it.
// clang-format off
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/weights_avx512.inc.h"
#include "backend/cpu/amx/bf16_codes.inc.h"
#include "backend/cpu/amx/bf16_rows.inc.h"
#include "backend/cpu/amx/tile_registers.inc.h"
#include "backend/cpu/attention_rows.inc.h"
#include "backend/cpu/amx/attention.inc.h"
// clang-format on

// Packed rows, bf16 queries and bf16 weights of the value sum: all operands of tiles are exact.
static bool TilesServe(const AttentionArgs& a) {
  const bool window_only = a.compressed.rows == nullptr;
  return a.round && a.round_p && a.window_format != RowFormat::kF32 &&
         (window_only || a.compressed.format != RowFormat::kF32);
}

void Attention(const AttentionArgs& a, Work w) {
  if (!TilesServe(a)) return avx512::Attention(a, w);
  const int64_t tiles = (a.heads + 15) / 16;
  const Span span = SplitWork(*a.n_rows * tiles, 1, w);
  ConfigureTiles();
  for (int64_t i = span.begin, n; i < span.end; i += n) {
    const int64_t first = i % tiles;
    n = Smaller(Smaller(tiles - first, span.end - i), kMostHeadTiles);
    AttendHeads(a, i / tiles, 16 * first, n, a.scratch + w.tid * a.scratch_stride);
  }
  ReleaseTiles();
}
}  // namespace deepinfer::cpu::amx
