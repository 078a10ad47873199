// Ranks that are processes which mpirun started.
#pragma once

#include <chrono>
#include <memory>

#include "parallel/comm.h"

namespace deepinfer {

// This process among those of its mpirun. One object, made and destroyed by the main thread, which
// makes all calls. Without End before its destruction this process leaves because of an error: the
// whole mpirun ends with it, because the others may wait for this one.
class MpiSession {
 public:
  // deadline: of every exchange, see Comm.
  explicit MpiSession(std::chrono::milliseconds deadline);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  Comm* world() const { return world_.get(); }
  // The work is done on all ranks.
  void End();

 private:
  std::unique_ptr<Comm> world_;
  bool ended_ = false;
};

}  // namespace deepinfer
