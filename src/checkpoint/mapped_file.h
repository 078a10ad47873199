// A file mapped read-only into memory.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

// How bytes of a mapping will be read. Only a wish: what the system makes of it does not matter.
enum class Reading {
  kInOrder,   // in long runs: pages of 2 MiB, which need no look-up per 4 KiB
  kAtRandom,  // rows here and there: nothing around them
};
void Advise(const uint8_t* data, int64_t bytes, Reading reading);

// Nothing is read until a byte is touched. Offsets and sizes are 64 bits wide (Engram shards exceed
// 100 GB). The file must not shrink while it is mapped.
class MappedFile {
 public:
  // Throws Error kNotFound or kIo naming the path.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  const uint8_t* data() const { return data_; }  // null when the file is empty
  int64_t size() const { return size_; }

 private:
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace deepinfer
