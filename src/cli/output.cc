#include "cli/output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace deepinfer {

namespace {

constexpr size_t kBufferBytes = 1 << 16;

struct FileCloser {
  int fd;
  ~FileCloser() { close(fd); }
};

}  // namespace

void Output::Write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) Flush();
}

void Output::Flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw Error(Code::kIo, fmt::format("{}: expected to write {} bytes, found: {}", name_,
                                         buffer_.size() - done, std::strerror(errno)));
    }
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

void WriteFile(const std::string& option, const std::string& path, std::string_view text) {
  const std::string name = option + ": " + path;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    throw Error(Code::kIo,
                fmt::format("{}: expected a file to write, found: {}", name, std::strerror(errno)));
  }
  const FileCloser closer{fd};
  Output out(fd, name);
  out.Write(text);
  out.Flush();
}

}  // namespace deepinfer
