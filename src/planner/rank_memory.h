// Bytes of weights that a rank of a layout holds, by part of the model, from the shapes alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/layout.h"
#include "config/model_config.h"
#include "config/shape_table.h"

namespace deepinfer {

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
};

// Bytes of a tensor that this rank owns: some of its rows or columns, all, or none.
int64_t OwnedBytes(const TensorSpec& tensor, const Layout& layout, int rank);

// The name of the part that a tensor counts for; kOnHost for what HostMemory has.
inline constexpr char kOnHost[] = "shared on a host";
const char* MemoryPartOf(const TensorSpec& tensor, const Layout& layout);

// What a rank holds for itself, largest part first: everything but vision and what HostMemory has.
std::vector<MemoryPart> RankMemory(const ModelConfig& config, const Layout& layout, int rank);

// Bytes of what the ranks of a host share: tables that are read by single rows and not cut.
int64_t HostMemory(const ModelConfig& config, const Layout& layout);

}  // namespace deepinfer
