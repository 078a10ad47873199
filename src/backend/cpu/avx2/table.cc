#include "backend/cpu/avx2/kernels.h"
#include "backend/cpu/tables.h"

namespace deepinfer::cpu {

// rope_table stays with the scalar reference: 32 angles a row, once per step, and libm's argument
// reduction.
constexpr KernelTable kAvx2Kernels = {
    .isa = "avx2",
    .embed = avx2::Embed,
    .rms_norm = avx2::RmsNorm,
    .add = avx2::Add,
    .quant_rows = avx2::QuantRows,
    .store_rows = avx2::StoreRows,
    .gather_rows = avx2::GatherRows,
    .linear = avx2::Linear,
    .rope_table = nullptr,
    .rope = avx2::Rope,
    .mix = avx2::Mix,
    .collapse = avx2::Collapse,
    .expand = avx2::Expand,
    .pool = avx2::Pool,
    .index_select = avx2::IndexSelect,
    .index_merge = avx2::IndexMerge,
    .attention = avx2::Attention,
    .route = avx2::Route,
    .group_pairs = avx2::GroupPairs,
    .check_experts = avx2::CheckExperts,
    .gate_up = avx2::GateUp,
    .down = avx2::Down,
    .engram_gather = avx2::EngramGather,
    .engram_gate = avx2::EngramGate,
    .top_logits = avx2::TopLogits,
};

}  // namespace deepinfer::cpu
