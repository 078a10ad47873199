#include "ops/ref/reference.h"

namespace deepinfer {

const KernelTable& ReferenceKernels() {
  static constexpr KernelTable kTable = {
      .isa = "generic",
      .embed = ref::Embed,
      .rms_norm = ref::RmsNorm,
      .add = ref::Add,
      .quant_rows = ref::QuantRows,
      .store_rows = ref::StoreRows,
      .gather_rows = ref::GatherRows,
      .linear = ref::Linear,
      .rope_table = ref::RopeTable,
      .rope = ref::Rope,
      .mix = ref::Mix,
      .collapse = ref::Collapse,
      .expand = ref::Expand,
      .pool = ref::Pool,
      .index_select = ref::IndexSelect,
      .index_merge = ref::IndexMerge,
      .attention = ref::Attention,
      .route = ref::Route,
      .group_pairs = ref::GroupPairs,
      .check_experts = ref::CheckExperts,
      .gate_up = ref::GateUp,
      .down = ref::Down,
      .engram_gather = ref::EngramGather,
      .engram_gate = ref::EngramGate,
      .top_logits = ref::TopLogits,
      .tap = ref::Tap,
      .transition_input = ref::TransitionInput,
      .draft_choose = ref::DraftChoose,
      .draft_merge = ref::DraftMerge,
  };
  return kTable;
}

}  // namespace deepinfer
