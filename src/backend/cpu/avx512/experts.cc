#include "backend/cpu/avx512/kernels.h"

namespace deepinfer::cpu::avx512 {
// clang-format off: each text uses those before it
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/row_codec.inc.h"
#include "backend/cpu/avx512/weights.inc.h"
#include "backend/cpu/matrix.inc.h"
#include "backend/cpu/experts.inc.h"
// clang-format on
}  // namespace deepinfer::cpu::avx512
