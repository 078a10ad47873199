// Checkpoint: the tensors of a model directory, mapped read-only and checked against the config.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "config/layout.h"
#include "config/model_config.h"
#include "config/shape_table.h"

namespace deepinfer {

// One tensor as it lies in a shard.
struct StoredTensor {
  std::string name;
  std::string dtype;           // as spelled in the file
  std::vector<int64_t> shape;  // as counted in the file: packed fp4 in bytes
  int shard;                   // index into Checkpoint::shards()
  const uint8_t* data;         // of the whole tensor, any alignment
  int64_t bytes;
};

class Checkpoint {
 public:
  // Opens `dir`: model.safetensors.index.json with its shards, or a lone model.safetensors. Reads
  // headers only. Every tensor the config implies (all parts: also draft stages and vision) must be
  // there with its dtype and shape; `I8` and `U8` packed fp4 and `F8_E8M0` and `U8` scales are the
  // same thing. Throws Error: kNotFound (file or tensor missing), kShape (other dtype or shape),
  // kCorrupt (bytes that are not the format), kIo. The message names the file or tensor, what was
  // expected and what was found.
  static Checkpoint Open(const std::string& dir, const ModelConfig& config);

  // The tensors of `config` in memory instead of files: seeded random bytes (random_tensors.h), one
  // behind the other as in a shard, written by `threads` threads. own: which bytes of a tensor are
  // wanted (all by default); there is no memory for others, and nobody may read them. Throws
  // Error kInvalid when the machine has less memory available than they take.
  using OwnBytes = std::function<Range(const TensorSpec& tensor)>;
  static Checkpoint Random(const ModelConfig& config, uint64_t seed, int threads,
                           const OwnBytes& own = nullptr);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // Weight `name` with its scales ("X.weight" finds "X.scale"). A one-dimensional tensor [n] is one
  // row of n columns. Views stay valid while the Checkpoint (or the object it was moved to) lives.
  // Throws Error kNotFound for a name that is not in the checkpoint, kInvalid for a scale tensor
  // asked for by itself.
  WeightView Get(std::string_view name) const;

  // Rows [begin, end) of the same. A slice of a kFp8Tile32 weight that begins inside a scale tile
  // has scale_row0 = begin % 32. Throws Error kInvalid when the range is not inside the tensor.
  WeightView Rows(std::string_view name, int64_t begin, int64_t end) const;

  // The stored tensor, or null. Names are exact; scales are tensors of their own here.
  const StoredTensor* Find(std::string_view name) const;

  // All tensors of all shards, shard by shard, by rising offset.
  std::span<const StoredTensor> tensors() const;
  // File names without the directory.
  std::span<const std::string> shards() const;
  // Names of stored tensors that the config does not imply; they are ignored.
  std::span<const std::string> unused() const;
  // Sum of the bytes of all stored tensors; of random ones, of what is there of them.
  int64_t total_bytes() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
