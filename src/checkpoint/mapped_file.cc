#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/arena.h"
#include "base/error.h"

namespace deepinfer {

// Takes whole pages, those at both ends included.
void Advise(const uint8_t* data, int64_t bytes, Reading reading) {
  constexpr uintptr_t kPage = kPageBytes;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  if (bytes == 0) return;
  madvise(reinterpret_cast<void*>(begin), end - begin,
          reading == Reading::kInOrder ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

MappedFile::MappedFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo;
    throw Error(code, fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    throw Error(Code::kIo, fmt::format("{}: expected a regular file", path));
  }
  void* data = nullptr;
  if (info.st_size > 0)
    data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
  const int map_error = errno;
  close(fd);
  if (data == MAP_FAILED) {
    throw Error(Code::kIo, fmt::format("{}: {} bytes cannot be mapped: {}", path, info.st_size,
                                       std::strerror(map_error)));
  }
  data_ = static_cast<const uint8_t*>(data);
  size_ = info.st_size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

}  // namespace deepinfer
