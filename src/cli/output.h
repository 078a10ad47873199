// Checked standard output: text that cannot be written is an Error, not a silent loss.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace deepinfer {

// Buffers and writes to a file descriptor. Commands end with Flush(); what is still buffered when
// an Output goes out of scope without it is dropped (the command has failed).
class Output {
 public:
  explicit Output(int fd = 1, std::string name = "standard output")
      : fd_(fd), name_(std::move(name)) {}

  // Both throw Error kIo when the descriptor takes no more bytes (closed, disk full, reader gone).
  void Write(std::string_view text);
  void Flush();

 private:
  int fd_;
  std::string name_;
  std::string buffer_;
};

// Writes a whole file. Throws Error kIo naming `option` and the file when it cannot be written.
void WriteFile(const std::string& option, const std::string& path, std::string_view text);

}  // namespace deepinfer
