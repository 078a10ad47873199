#include "backend/cpu/avx512/kernels.h"
#include "backend/cpu/tables.h"

namespace deepinfer::cpu {

// rope_table stays with the scalar reference: 32 angles a row, once per step, and libm's argument
// reduction.
constexpr KernelTable kAvx512Kernels = {
    .isa = "avx512",
    .embed = avx512::Embed,
    .rms_norm = avx512::RmsNorm,
    .add = avx512::Add,
    .quant_rows = avx512::QuantRows,
    .store_rows = avx512::StoreRows,
    .gather_rows = avx512::GatherRows,
    .linear = avx512::Linear,
    .rope_table = nullptr,
    .rope = avx512::Rope,
    .mix = avx512::Mix,
    .collapse = avx512::Collapse,
    .expand = avx512::Expand,
    .pool = avx512::Pool,
    .index_select = avx512::IndexSelect,
    .index_merge = avx512::IndexMerge,
    .attention = avx512::Attention,
    .route = avx512::Route,
    .group_pairs = avx512::GroupPairs,
    .check_experts = avx512::CheckExperts,
    .gate_up = avx512::GateUp,
    .down = avx512::Down,
    .engram_gather = avx512::EngramGather,
    .engram_gate = avx512::EngramGate,
    .top_logits = avx512::TopLogits,
};

}  // namespace deepinfer::cpu
