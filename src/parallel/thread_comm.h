// Ranks that are threads of one process: they read and write each other's buffers.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "parallel/comm.h"

namespace deepinfer {

// The communicators of a world, by rank; each is used by one thread.
std::vector<std::unique_ptr<Comm>> MakeThreadWorld(int ranks, std::chrono::milliseconds deadline);

}  // namespace deepinfer
