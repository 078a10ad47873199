// What rank 0 tells the other ranks to load (docs/ranks.md): they have no command line of their
// own.
#pragma once

#include "engine/executor.h"

namespace deepinfer {

// Rank 0, right before it makes an executor with the same options, of which `world` is set.
void SendLoad(const ExecutorOptions& options);
// Rank 0, when its work is done.
void SendEnd(Comm* world);

// Another rank, from its start to its end: loads what it is told to and follows. Throws Error as
// Executor does, and when the world fails.
void FollowDriver(Comm* world);

}  // namespace deepinfer
