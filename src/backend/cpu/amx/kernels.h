// The kernels of this instruction set: the products with bf16 tiles. Everything else, and products
// that tiles cannot do exactly, stays with AVX-512.
#pragma once

#include "backend/cpu/avx512/kernels.h"

namespace deepinfer::cpu::amx {

void Linear(const LinearArgs& a, Work w);
void GateUp(const GateUpArgs& a, Work w);
void Down(const DownArgs& a, Work w);

}  // namespace deepinfer::cpu::amx
