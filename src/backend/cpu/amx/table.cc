#include "backend/cpu/amx/kernels.h"
#include "backend/cpu/tables.h"

namespace deepinfer::cpu {
namespace {

constexpr KernelTable Products() {
  KernelTable table = {};
  table.isa = "amx";
  table.linear = amx::Linear;
  table.gate_up = amx::GateUp;
  table.down = amx::Down;
  table.index_select = amx::IndexSelect;
  table.index_merge = amx::IndexMerge;
  table.attention = amx::Attention;
  return table;
}

}  // namespace

constexpr KernelTable kAmxKernels = Products();

}  // namespace deepinfer::cpu
