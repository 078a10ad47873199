// SharedMemory: zeroed bytes that several threads, or several processes of a host, can see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace deepinfer {

class SharedMemory {
 public:
  // For the threads of this process.
  explicit SharedMemory(int64_t bytes);
  // For processes: the first creates `name` ("/" and no other), the others open it. Throws
  // Error(kIo) when there is no room for all bytes: nobody meets the end of memory later.
  static SharedMemory Create(const std::string& name, int64_t bytes);
  static SharedMemory Open(const std::string& name, int64_t bytes);
  // Nobody can open it any more; it lives as long as someone has it.
  static void Remove(const std::string& name);

  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;

  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }

 private:
  SharedMemory(int file, int64_t bytes, const std::string& name);

  std::byte* base_;
  int64_t bytes_;
};

}  // namespace deepinfer
