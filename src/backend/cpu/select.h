// Chooses the kernels for this CPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "ops/kernel_table.h"

namespace deepinfer {

// The kernels of one instruction set level, every entry set: what a level does not have comes from
// the next lower one, in the end from the scalar reference. `force` is a level of AvailableLevels
// or "auto", which takes the highest. The table lives as long as the program. Throws Error:
// kInvalid for an unknown name, kUnsupported for a level that this CPU cannot run (the message
// names the level and the first feature that is missing) or that this build lacks.
const KernelTable& SelectKernels(const CpuFeatures& features, std::string_view force);

// Names of the levels that this CPU can run, lowest first: generic, avx2, avx512, amx.
std::vector<std::string> AvailableLevels(const CpuFeatures& features);

}  // namespace deepinfer
