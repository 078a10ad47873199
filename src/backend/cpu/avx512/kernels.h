// What every kernel file of this instruction set starts with. Files named *.inc.h are text that is
// included inside namespace deepinfer::cpu::avx512: the same source compiles once per instruction
// set, with internal linkage.
#pragma once

// g++ 12 warns about its own header: _mm512_undefined_ps() reads an uninitialised variable (GCC bug
// 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ops/kernel_table.h"

namespace deepinfer::cpu::avx512 {
#include "backend/cpu/kernels.inc.h"
}  // namespace deepinfer::cpu::avx512
