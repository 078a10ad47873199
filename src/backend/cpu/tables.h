// The kernel table of every instruction set that this build has. Entries may be null: the next
// lower table then serves.
#pragma once

#include "ops/kernel_table.h"

namespace deepinfer::cpu {

extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAmxKernels;

}  // namespace deepinfer::cpu
