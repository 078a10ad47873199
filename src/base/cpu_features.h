// What this CPU, this operating system and this process may execute.
#pragma once

#include <cstdint>
#include <string_view>

namespace deepinfer {

// True means usable: the CPU has the instructions, the operating system saves their registers and,
// for AMX, has granted this process the use of tile data.
struct CpuFeatures {
  bool avx2, fma, f16c;
  bool avx512f, avx512bw, avx512dq, avx512vl, avx512vnni, avx512vbmi;
  bool amx_tile, amx_bf16, amx_int8;

  // The same CPU without what is above `level`: generic (nothing is left), avx2 (no AVX-512, no
  // AMX), avx512 (no AMX) or amx (unchanged). Throws Error{kInvalid} for another name.
  CpuFeatures Masked(std::string_view level) const;
};

// The raw answers that CpuFeatures is made from; zero for a leaf that the CPU does not have.
struct CpuidAnswers {
  uint32_t leaf1_ecx;
  uint32_t leaf7_ebx, leaf7_ecx, leaf7_edx;
  uint64_t xcr0;       // register state that the operating system saves; 0 without OSXSAVE
  bool amx_permitted;  // the operating system lets this process use tile data
};

CpuFeatures FeaturesFrom(const CpuidAnswers& answers);

// Asks the CPU and, where it has AMX, the operating system for the permission to use it. The
// permission is asked for once per process and covers all its threads.
const CpuFeatures& DetectCpuFeatures();

}  // namespace deepinfer
