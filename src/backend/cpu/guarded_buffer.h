// For kernel tests: memory that ends where the next page cannot be touched, so that a read past the
// end stops the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace deepinfer {

// A copy of some values whose last byte is the last byte of a readable page. Unless their size is a
// multiple of 64 the first byte is misaligned; `T` may then lie at an address that a T* must not
// have, so use bytes() for such kernels.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(int64_t bytes) : bytes_(bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    mapped_ = (bytes + page - 1) / page * page + page;
    void* p = mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DI_CHECK(p != MAP_FAILED) << "mmap of " << mapped_ << " bytes";
    base_ = static_cast<uint8_t*>(p);
    DI_CHECK(mprotect(base_ + mapped_ - page, static_cast<size_t>(page), PROT_NONE) == 0);
    data_ = base_ + mapped_ - page - bytes;
  }
  template <class T>
  explicit GuardedBuffer(const std::vector<T>& values)
      : GuardedBuffer(static_cast<int64_t>(values.size() * sizeof(T))) {
    if (!values.empty()) std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  ~GuardedBuffer() { munmap(base_, static_cast<size_t>(mapped_)); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  uint8_t* bytes() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  int64_t size_bytes() const { return bytes_; }

 private:
  uint8_t* base_;
  uint8_t* data_;
  int64_t bytes_, mapped_;
};

}  // namespace deepinfer
