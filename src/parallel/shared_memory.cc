#include "parallel/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace deepinfer {

namespace {

Error Refused(const std::string& name, int64_t bytes, int code) {
  return Error(Code::kIo,
               fmt::format("shared memory {}: expected room for {} bytes (/dev/shm), found: {}",
                           name, bytes, std::strerror(code)));
}

std::byte* Map(int flags, int file, int64_t bytes, const std::string& name) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, file, 0);
  const int code = errno;
  if (file >= 0) close(file);
  if (base == MAP_FAILED) throw Refused(name, bytes, code);
  return static_cast<std::byte*>(base);
}

}  // namespace

SharedMemory::SharedMemory(int64_t bytes)
    : base_(Map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, bytes, "of threads")),
      bytes_(bytes) {}

SharedMemory::SharedMemory(int file, int64_t bytes, const std::string& name)
    : base_(Map(MAP_SHARED, file, bytes, name)), bytes_(bytes) {}

SharedMemory SharedMemory::Create(const std::string& name, int64_t bytes) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0) throw Refused(name, bytes, errno);
  if (const int code = posix_fallocate(file, 0, bytes); code != 0) {
    close(file);
    shm_unlink(name.c_str());
    throw Refused(name, bytes, code);
  }
  return {file, bytes, name};
}

SharedMemory SharedMemory::Open(const std::string& name, int64_t bytes) {
  const int file = shm_open(name.c_str(), O_RDWR, 0600);
  if (file < 0) throw Refused(name, bytes, errno);
  return {file, bytes, name};
}

void SharedMemory::Remove(const std::string& name) { shm_unlink(name.c_str()); }

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}

}  // namespace deepinfer
