#include "backend/cpu/limits.h"

#include "backend/cpu/amx/kernels.h"

namespace deepinfer::cpu::amx {
// Each text uses those before it.
// clang-format off
#include "backend/cpu/vec.inc.h"
#include "backend/cpu/amx/tile_registers.inc.h"
// clang-format on

// Two row tiles by two column tiles: four loads, four multiplications a step. The loads bound it.
static double TileLoop(int64_t rounds, const uint16_t* operands, float* sink) {
  constexpr int64_t kRun = kTileSteps * kTileWords;
  ConfigureTiles();
  const uint16_t* w = operands;
  for (int64_t r = 0; r < rounds; ++r) {
    for (int t = 0; t < 4; t += 2) {
      const uint16_t* x = operands + (2 + t) * kRun;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t i = 0; i < kRun; i += kTileWords) {
        _tile_loadd(4, w + i, 64);
        _tile_loadd(5, w + kRun + i, 64);
        _tile_loadd(6, x + i, 64);
        _tile_loadd(7, x + kRun + i, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  alignas(64) float sums[256];
  _tile_stored(0, sums, 64);
  asm volatile("" : : "r"(sums) : "memory");
  *sink = sums[0];
  ReleaseTiles();
  return 2.0 * 2 * 4 * kTileSteps * 16 * 16 * 32 * static_cast<double>(rounds);
}
}  // namespace deepinfer::cpu::amx

namespace deepinfer::cpu {

constexpr LimitLoops kAmxLimits = {nullptr, nullptr, nullptr, amx::TileLoop};

}  // namespace deepinfer::cpu
