#include "backend/cpu/avx512/kernels.h"

namespace deepinfer::cpu::avx512 {
// Each text uses those before it.
// clang-format off
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/weights_avx512.inc.h"
#include "backend/cpu/weight_rows.inc.h"
#include "backend/cpu/matrix.inc.h"
#include "backend/cpu/linear.inc.h"
// clang-format on

void Linear(const LinearArgs& a, Work work) { LinearPanels(a, work); }
}  // namespace deepinfer::cpu::avx512
