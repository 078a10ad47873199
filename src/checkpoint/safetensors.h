// The two JSON formats of a checkpoint directory: the header of a safetensors file and the index of
// all shards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

struct HeaderTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

struct SafetensorsHeader {
  std::vector<HeaderTensor> tensors;  // by rising offset
  int64_t data_start = 0;             // offset of the first tensor byte in the file
};

// Reads the header at the front of a safetensors file: 8 bytes little-endian length, then JSON
// {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}. Only the
// header's bytes are read. The tensors must fill the rest of the file without holes or overlaps,
// each as long as shape and dtype say, no name twice. Throws Error kCorrupt naming `file` and the
// tensor, with expected and found.
SafetensorsHeader ParseSafetensorsHeader(const uint8_t* data, int64_t file_bytes,
                                         const std::string& file);

// Reads model.safetensors.index.json: (tensor, shard) pairs of its "weight_map", in file order.
// Shard names are plain file names. Throws Error kCorrupt naming `file`.
std::vector<std::pair<std::string, std::string>> ParseIndex(std::string_view json,
                                                            const std::string& file);

// A name out of a file for use in a message: control characters become '?', long names are cut.
std::string Printable(std::string_view name);

}  // namespace deepinfer
