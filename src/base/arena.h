// Memory that is planned first and allocated once. Nothing in a step allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer {

// A booked piece of an arena; not yet memory.
struct Buf {
  int64_t offset = 0, bytes = 0;
};

// Stack-like booking: Save() before a group of temporaries, Restore() when the next group may reuse
// their place.
class ArenaPlan {
 public:
  using Mark = int64_t;

  Buf Book(const char* name, int64_t bytes, int64_t align = 64);
  Mark Save() const { return top_; }
  void Restore(Mark mark) { top_ = mark; }

  // Bytes an arena needs to hold everything that was booked.
  int64_t peak_bytes() const { return peak_; }
  // Largest number of bytes booked under names that begin with `prefix`, counting each name once.
  int64_t BookedBytes(const std::string& prefix) const;

 private:
  struct Entry {
    std::string name;
    int64_t bytes;
  };
  int64_t top_ = 0, peak_ = 0;
  std::vector<Entry> entries_;
};

inline constexpr int64_t kPageBytes = 4096;
// A large page; memory of this size and more begins at a multiple of it.
inline constexpr int64_t kHugePageBytes = 2 << 20;

// Zeroed, page-aligned memory, huge pages asked for. Nothing is touched here: a page appears, in
// the memory of the processor whose thread first writes to it, then.
// Throws Error{kIo} when the system refuses, naming `what` and the size.
class Arena {
 public:
  Arena() = default;
  Arena(const char* what, int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }
  template <class T>
  T* At(Buf buf) const {
    return reinterpret_cast<T*>(base_ + buf.offset);
  }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace deepinfer
