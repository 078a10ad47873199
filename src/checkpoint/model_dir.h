// From what the user calls a model to the directory that holds it.
#pragma once

#include <string>

namespace deepinfer {

// `model` is a directory, or a hub name `org/name` whose files lie in the local hub cache
// `cache_dir` (models--org--name/refs/main names the snapshot). Nothing is downloaded. Throws Error
// kNotFound saying where it looked.
std::string ResolveModelDir(const std::string& model, const std::string& cache_dir);

}  // namespace deepinfer
