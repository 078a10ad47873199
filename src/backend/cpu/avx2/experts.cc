#include "backend/cpu/avx2/kernels.h"

namespace deepinfer::cpu::avx2 {
// clang-format off: each text uses those before it
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/avx2/weights.inc.h"
#include "backend/cpu/matrix.inc.h"
#include "backend/cpu/experts.inc.h"
// clang-format on
}  // namespace deepinfer::cpu::avx2
