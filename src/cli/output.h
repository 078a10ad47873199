// Checked standard output: text that cannot be written is an Error, not a silent loss.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

// Buffers and writes to a file descriptor. Commands end with Flush(); what is still buffered when
// an Output goes out of scope without it is dropped (the command has failed).
class Output {
 public:
  explicit Output(int fd = 1) : fd_(fd) {}

  // Both throw Error kIo when the descriptor takes no more bytes (closed, disk full, reader gone).
  void Write(std::string_view text);
  void Flush();

 private:
  int fd_;
  std::string buffer_;
};

}  // namespace deepinfer
