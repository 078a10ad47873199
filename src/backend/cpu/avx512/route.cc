#include "backend/cpu/avx512/kernels.h"

namespace deepinfer::cpu::avx512 {
// clang-format off: each text uses those before it
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/route.inc.h"
// clang-format on
}  // namespace deepinfer::cpu::avx512
