// The tensors a config implies: names, stored types and shapes of a checkpoint (spec 02 section 2).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace deepinfer {

enum class Part : uint8_t { kGlobal, kBackbone, kExperts, kEngram, kMtp, kVision };
inline constexpr int kNumParts = 6;
// "global", "backbone", "experts", "engram", "mtp", "vision".
std::string_view PartName(Part part);

// Shape of a stored tensor as the file counts it: packed fp4 in bytes. No tensor of the layout has
// more than two dimensions.
struct TensorSpec {
  std::string name;
  std::string_view dtype;  // safetensors spelling: I8, F8_E4M3, F8_E8M0, BF16, F32
  Part part;
  int rank;                      // 1 or 2
  std::array<int64_t, 2> shape;  // shape[1] is 1 when rank is 1

  std::span<const int64_t> dims() const { return {shape.data(), static_cast<size_t>(rank)}; }
  int64_t bytes() const;
};

// Bytes per element of a safetensors dtype, or 0 for a spelling that is not known.
int64_t StoredTypeBytes(std::string_view dtype);

// Every tensor of the checkpoint, in model order: global, layers, draft stages, vision. Weights
// stand in front of their scales. The released config gives 96,085 tensors. Experts of the draft
// stages count as part kMtp.
std::vector<TensorSpec> ShapeTable(const ModelConfig& config);

}  // namespace deepinfer
