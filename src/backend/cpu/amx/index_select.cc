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
#include "backend/cpu/amx/index_scores.inc.h"
#include "backend/cpu/index_selection.inc.h"
#include "backend/cpu/index_select.inc.h"
// clang-format on

// Packed keys and bf16 queries.
static bool TilesServe(const IndexSelectArgs& a) {
  return a.round && a.keys.format != RowFormat::kF32;
}

void IndexSelect(const IndexSelectArgs& a, Work w) {
  if (!TilesServe(a)) return avx512::IndexSelect(a, w);
  ConfigureTiles();
  SelectRows(a, w);
  ReleaseTiles();
}

void IndexMerge(const IndexSelectArgs& a, Work w) {
  if (!TilesServe(a)) return avx512::IndexMerge(a, w);
  MergeRows(a, w);
}
}  // namespace deepinfer::cpu::amx
