// The kernels of this instruction set: the products with bf16 tiles. Everything else, and products
// that tiles cannot do exactly, stays with AVX-512, which every CPU with tiles has.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ops/kernel_table.h"

namespace deepinfer::cpu::avx512 {
#include "backend/cpu/kernels.inc.h"
}  // namespace deepinfer::cpu::avx512

namespace deepinfer::cpu::amx {

void Linear(const LinearArgs& a, Work w);
void GateUp(const GateUpArgs& a, Work w);
void Down(const DownArgs& a, Work w);
void Attention(const AttentionArgs& a, Work w);
void IndexSelect(const IndexSelectArgs& a, Work w);
void IndexMerge(const IndexSelectArgs& a, Work w);

}  // namespace deepinfer::cpu::amx
