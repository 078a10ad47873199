#include "backend/cpu/limits.h"

#include "backend/cpu/avx512/kernels.h"

namespace deepinfer::cpu::avx512 {
#include "backend/cpu/vec.inc.h"
// The loops use the above.
#include "backend/cpu/limits.inc.h"

static double Int8Loop(int64_t rounds, int32_t* sink) {
  constexpr int kChains = 12;
  const __m512i weights = _mm512_set1_epi8(24), x = _mm512_set1_epi8(-1);
  __m512i sums[kChains];
  for (int k = 0; k < kChains; ++k) sums[k] = SetInt(k);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
#pragma GCC unroll 12
      for (int k = 0; k < kChains; ++k) sums[k] = _mm512_dpbusd_epi32(sums[k], weights, x);
    }
  }
  for (int k = 1; k < kChains; ++k) sums[0] = AddInt(sums[0], sums[k]);
  *sink = _mm_cvtsi128_si32(_mm512_castsi512_si128(sums[0]));
  return 2.0 * 4 * kChains * 64 * static_cast<double>(rounds);
}
}  // namespace deepinfer::cpu::avx512

namespace deepinfer::cpu {

constexpr LimitLoops kAvx512Limits = {avx512::ReadLoop, avx512::FmaLoop, avx512::Int8Loop, nullptr};

}  // namespace deepinfer::cpu
