#include "backend/cpu/limits.h"

#include "backend/cpu/avx2/kernels.h"

namespace deepinfer::cpu::avx2 {
#include "backend/cpu/vec.inc.h"
// The loops use the above.
#include "backend/cpu/limits.inc.h"
}  // namespace deepinfer::cpu::avx2

namespace deepinfer::cpu {

constexpr LimitLoops kAvx2Limits = {avx2::ReadLoop, avx2::FmaLoop, nullptr, nullptr};

}  // namespace deepinfer::cpu
