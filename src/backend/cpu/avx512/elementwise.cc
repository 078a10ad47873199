#include "backend/cpu/avx512/kernels.h"

namespace deepinfer::cpu::avx512 {
// Each text uses those before it.
// clang-format off
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/norm_rope.inc.h"
#include "backend/cpu/elementwise.inc.h"
#include "backend/cpu/logits.inc.h"
// clang-format on
}  // namespace deepinfer::cpu::avx512
