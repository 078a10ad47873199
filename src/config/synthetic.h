// Synthetic models: the released widths with fewer layers, experts and words, for machines and
// measurements without the released weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace deepinfer {

// config.json of the release.
extern const char* const kReleasedConfig;

struct SyntheticModel {
  int64_t layers = 4;      // 1 to 40
  int64_t experts = 64;    // routed experts of a layer
  int64_t vocab = 129280;  // words of embedding and head
  int64_t engram = 16384;  // rows of an Engram table per hash column, about
  int64_t stages = -1;     // draft stages, 0 to 3; -1: in the released share, at least 1
  uint64_t seed = 1;       // of the weights

  // "layers=4,experts=64": any of the fields above, the others keep their defaults; "" is all
  // defaults. Throws Error for what is no such list.
  static SyntheticModel Parse(std::string_view text);
};

// Kinds of layers in a cut, chosen in about the released shares: all 40 layers are the released
// list. Window-only layers come first, then ratio 2, then ratio 1. A cut of 1 has ratio 1 only, of
// 2 both ratios, of 3 a window-only layer too, of 4 or more an Engram layer.
struct LayerCut {
  std::vector<int> ratios, kv_sources, index_sources, engram;
};
LayerCut CutLayers(int64_t layers);

// The released config cut to `model`, without vision. Draft stages tap the last layers and have
// experts in the released proportion to those of a layer.
ModelConfig SyntheticConfig(const SyntheticModel& model);

// The first `count` primes from `vocab_size` on: table sizes of the Engram hash columns, over all
// Engram layers (spec 04 section 3).
std::vector<int64_t> EngramPrimes(int64_t vocab_size, int64_t count);

// What a layer or stage is, by what it reads: "window", "ratio 2 source", "ratio 1 index source",
// "ratio 2 reuse", ..., with " + engram"; "draft stage".
std::string LayerKind(const ModelConfig& config, int layer);

}  // namespace deepinfer
