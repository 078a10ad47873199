#include "base/read_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace deepinfer {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() { close(fd); }
};

}  // namespace

std::string ReadFile(const std::string& path, int64_t max_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo;
    throw Error(code, fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  }
  const Descriptor closer{fd};
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    throw Error(Code::kIo, fmt::format("{}: expected a regular file", path));
  }
  if (info.st_size > max_bytes) {
    throw Error(Code::kCorrupt, fmt::format("{}: expected at most {} bytes, found {}", path,
                                            max_bytes, info.st_size));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = read(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Error(Code::kIo,
                  fmt::format("{}: read stopped at byte {} of {}: {}", path, done, text.size(),
                              n < 0 ? std::strerror(errno) : "end of file"));
    }
    done += static_cast<size_t>(n);
  }
  return text;
}

}  // namespace deepinfer
