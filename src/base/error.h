// Error: bad input (a file, an option, a request) answered with one sentence.
#pragma once

#include <stdexcept>
#include <string>

namespace deepinfer {

enum class Code {
  kInvalid,      // the value itself is wrong: an option, a config field, a request
  kNotFound,     // a file, tensor or name that must exist does not
  kShape,        // a tensor has another shape or dtype than the config implies
  kCorrupt,      // bytes that cannot be what the format says
  kIo,           // the operating system refused a read or a write
  kUnsupported,  // understood, but this program does not do it
};

// The message is one sentence that names the thing, what was expected and what was found. Thrown
// while loading and per request, never inside a step. Programs print it and exit with status 2.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

}  // namespace deepinfer
