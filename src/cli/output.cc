#include "cli/output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace deepinfer {

constexpr size_t kBufferBytes = 1 << 16;

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
      throw Error(Code::kIo, fmt::format("standard output: expected to write {} bytes, found: {}",
                                         buffer_.size() - done, std::strerror(errno)));
    }
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

}  // namespace deepinfer
