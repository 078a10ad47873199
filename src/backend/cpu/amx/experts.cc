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
#include "backend/cpu/experts.inc.h"
// clang-format on

// bf16 values times weights that are bf16 with their scales, in every expert of the step.
static bool TilesServe(bool bf16_inputs, const ExpertPairs& pairs, const ExpertWeights* experts) {
  for (int32_t i = 0; i < *pairs.n_active; ++i) {
    const ExpertWeights& e = experts[pairs.active[i]];
    if (e.w1.dtype == DType::kF32 || e.w3.dtype == DType::kF32 || e.w2.dtype == DType::kF32) {
      return false;
    }
  }
  return bf16_inputs;
}

void GateUp(const GateUpArgs& a, Work work) {
  if (!TilesServe(a.bf16_inputs, a.pairs, a.experts)) return avx512::GateUp(a, work);
  GateUpPanels(a, work);
  ReleaseTiles();
}

void Down(const DownArgs& a, Work work) {
  if (!TilesServe(a.bf16_inputs, a.pairs, a.experts)) return avx512::Down(a, work);
  DownPanels(a, work);
  ReleaseTiles();
}
}  // namespace deepinfer::cpu::amx
