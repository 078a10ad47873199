#include "backend/cpu/select.h"

#include <fmt/core.h>

#include "backend/cpu/tables.h"
#include "base/error.h"

namespace deepinfer {
namespace {

struct Requirement {
  const char* name;
  bool CpuFeatures::*present;
};

struct Level {
  const char* name;
  const KernelTable* kernels;  // null: known by name, but this build has no kernels for it
  std::vector<Requirement> needs;
};

// Lowest first. A level also needs everything that the levels below it need.
const std::vector<Level>& Levels() {
  using F = CpuFeatures;
  static const std::vector<Level> levels = {
      {"generic", &ReferenceKernels(), {}},
      {"avx2", &cpu::kAvx2Kernels, {{"AVX2", &F::avx2}, {"FMA", &F::fma}, {"F16C", &F::f16c}}},
      {"avx512",
       &cpu::kAvx512Kernels,
       {{"AVX512F", &F::avx512f},
        {"AVX512BW", &F::avx512bw},
        {"AVX512DQ", &F::avx512dq},
        {"AVX512VL", &F::avx512vl},
        {"AVX512_VNNI", &F::avx512vnni},
        {"AVX512_VBMI", &F::avx512vbmi}}},
      {"amx",
       &cpu::kAmxKernels,
       {{"AMX-TILE", &F::amx_tile}, {"AMX-BF16", &F::amx_bf16}, {"AMX-INT8", &F::amx_int8}}},
  };
  return levels;
}

template <class Kernel>
void Fill(Kernel* entry, Kernel lower) {
  if (*entry == nullptr) *entry = lower;
}

// `table` with its null entries taken from `lower`.
KernelTable Merged(KernelTable table, const KernelTable& lower) {
  Fill(&table.embed, lower.embed);
  Fill(&table.rms_norm, lower.rms_norm);
  Fill(&table.add, lower.add);
  Fill(&table.quant_rows, lower.quant_rows);
  Fill(&table.store_rows, lower.store_rows);
  Fill(&table.gather_rows, lower.gather_rows);
  Fill(&table.linear, lower.linear);
  Fill(&table.rope_table, lower.rope_table);
  Fill(&table.rope, lower.rope);
  Fill(&table.mix, lower.mix);
  Fill(&table.collapse, lower.collapse);
  Fill(&table.expand, lower.expand);
  Fill(&table.pool, lower.pool);
  Fill(&table.index_select, lower.index_select);
  Fill(&table.index_merge, lower.index_merge);
  Fill(&table.attention, lower.attention);
  Fill(&table.route, lower.route);
  Fill(&table.group_pairs, lower.group_pairs);
  Fill(&table.check_experts, lower.check_experts);
  Fill(&table.gate_up, lower.gate_up);
  Fill(&table.down, lower.down);
  Fill(&table.engram_gather, lower.engram_gather);
  Fill(&table.engram_gate, lower.engram_gate);
  Fill(&table.top_logits, lower.top_logits);
  Fill(&table.tap, lower.tap);
  Fill(&table.transition_input, lower.transition_input);
  Fill(&table.draft_choose, lower.draft_choose);
  Fill(&table.draft_merge, lower.draft_merge);
  return table;
}

const std::vector<KernelTable>& MergedTables() {
  static const std::vector<KernelTable> tables = [] {
    std::vector<KernelTable> merged;
    for (const Level& level : Levels()) {
      const KernelTable own = level.kernels != nullptr ? *level.kernels : KernelTable{};
      merged.push_back(merged.empty() ? own : Merged(own, merged.back()));
      merged.back().isa = level.name;
    }
    return merged;
  }();
  return tables;
}

// The first feature that `features` lacks for level number `level`, or null.
const char* Missing(const CpuFeatures& features, size_t level) {
  for (size_t i = 0; i <= level; ++i) {
    for (const Requirement& need : Levels()[i].needs) {
      if (!(features.*need.present)) return need.name;
    }
  }
  return nullptr;
}

bool Available(const CpuFeatures& features, size_t level) {
  return Levels()[level].kernels != nullptr && Missing(features, level) == nullptr;
}

}  // namespace

std::vector<std::string> AvailableLevels(const CpuFeatures& features) {
  std::vector<std::string> names;
  for (size_t i = 0; i < Levels().size(); ++i) {
    if (Available(features, i)) names.push_back(Levels()[i].name);
  }
  return names;
}

const KernelTable& SelectKernels(const CpuFeatures& features, std::string_view force) {
  if (force == "auto") {
    size_t best = 0;
    for (size_t i = 0; i < Levels().size(); ++i) {
      if (Available(features, i)) best = i;
    }
    return MergedTables()[best];
  }
  for (size_t i = 0; i < Levels().size(); ++i) {
    const Level& level = Levels()[i];
    if (force != level.name) continue;
    if (level.kernels == nullptr) {
      throw Error(Code::kUnsupported,
                  fmt::format("instruction set level {}: this build has no kernels for it", force));
    }
    if (const char* missing = Missing(features, i)) {
      throw Error(
          Code::kUnsupported,
          fmt::format("instruction set level {}: this CPU or operating system does not offer {}",
                      force, missing));
    }
    return MergedTables()[i];
  }
  throw Error(Code::kInvalid,
              fmt::format("instruction set level '{}': expected auto, generic, avx2, avx512 or amx",
                          force));
}

}  // namespace deepinfer
