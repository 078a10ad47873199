#include "cli/input.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;  // no prompt is longer; /dev/zero has no end

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd > 0) close(fd);
  }
};

}  // namespace

std::string ReadInput(const std::string& option, const std::string& name) {
  const auto refuse = [&](const std::string& found) {
    throw Error(Code::kIo, fmt::format("{}: {}: cannot be read: {}", option,
                                       name == "-" ? "standard input" : name, found));
  };
  const Descriptor file{name == "-" ? 0 : open(name.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) refuse(std::strerror(errno));
  std::string text;
  for (;;) {
    char chunk[1 << 16];
    const ssize_t n = read(file.fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(std::strerror(errno));
    if (n == 0) return text;
    text.append(chunk, static_cast<size_t>(n));
    if (text.size() > kMaxBytes)
      refuse(fmt::format("expected at most {} bytes, found more", kMaxBytes));
  }
}

}  // namespace deepinfer
