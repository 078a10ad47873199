// Reads a small file (config, index, tokenizer) into memory.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

// The whole file. Throws Error: kNotFound when it does not exist, kIo when it cannot be read or is
// not a regular file, kCorrupt when it is longer than max_bytes. The message names the path.
std::string ReadFile(const std::string& path, int64_t max_bytes);

}  // namespace deepinfer
