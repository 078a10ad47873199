// Reads every byte of a checkpoint and looks for values that no weight should have.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace deepinfer {

// A tensor with values that are not finite: NaN scale bytes (255), NaN e4m3 codes (0x7f, 0xff), NaN
// or infinite bf16 and f32. Every byte of packed fp4 is a pair of numbers.
struct ScanFinding {
  std::string tensor;
  int64_t count;  // bad elements
  int64_t first;  // flat index of the first one, row-major
  std::vector<int64_t> shape;

  // "layers.0.attn.wkv.scale: 2 of 128 values are not finite, the first at [3, 1]".
  std::string Sentence() const;
};

// `progress` is called now and then with the bytes read so far.
std::vector<ScanFinding> ScanCheckpoint(const Checkpoint& checkpoint,
                                        const std::function<void(int64_t)>& progress);

}  // namespace deepinfer
