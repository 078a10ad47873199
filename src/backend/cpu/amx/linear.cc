#include "backend/cpu/amx/kernels.h"

namespace deepinfer::cpu::amx {
// Each text uses those before it.
// clang-format off
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/weights_avx512.inc.h"
#include "backend/cpu/weight_rows.inc.h"
#include "backend/cpu/amx/bf16_codes.inc.h"
#include "backend/cpu/amx/tile_registers.inc.h"
#include "backend/cpu/amx/tile_order.inc.h"
#include "backend/cpu/amx/bf16_weights.inc.h"
#include "backend/cpu/amx/panel_weights.inc.h"
#include "backend/cpu/amx/tiles.inc.h"
#include "backend/cpu/linear.inc.h"
// clang-format on

// bf16 values times weights that are bf16 with their scales.
static bool TilesServe(const LinearArgs& a) { return a.bf16_inputs && a.w.dtype != DType::kF32; }

void Linear(const LinearArgs& a, Work work) {
  if (!TilesServe(a)) return avx512::Linear(a, work);
  LinearPanels(a, work);
  ReleaseTiles();
}
}  // namespace deepinfer::cpu::amx
