// What every kernel file of this instruction set starts with. Files named *.inc.h are text that is
// included inside namespace deepinfer::cpu::avx2: the same source compiles once per instruction
// set, with internal linkage.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ops/kernel_table.h"

namespace deepinfer::cpu::avx2 {
#include "backend/cpu/kernels.inc.h"
}  // namespace deepinfer::cpu::avx2
