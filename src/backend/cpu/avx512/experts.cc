#include "backend/cpu/avx512/kernels.h"

namespace deepinfer::cpu::avx512 {
// Each text uses those before it.
// clang-format off
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/weights_avx512.inc.h"
#include "backend/cpu/weight_rows.inc.h"
#include "backend/cpu/matrix.inc.h"
#include "backend/cpu/experts.inc.h"
#include "backend/cpu/expert_lists.inc.h"
// clang-format on

void GateUp(const GateUpArgs& a, Work work) { GateUpPanels(a, work); }
void Down(const DownArgs& a, Work work) { DownPanels(a, work); }
}  // namespace deepinfer::cpu::avx512
