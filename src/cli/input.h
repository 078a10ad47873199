// Text that commands read as a whole.
#pragma once

#include <string>

namespace deepinfer {

// The bytes of a file (also a pipe), of standard input when the name is "-". Throws Error kIo,
// naming `option` and the file, when it cannot be read or has more than 1 GiB.
std::string ReadInput(const std::string& option, const std::string& name);

}  // namespace deepinfer
