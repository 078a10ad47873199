// Ranks that are processes which mpirun started.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "parallel/comm.h"

namespace deepinfer {

// This process among those of its mpirun. One object, made and destroyed by the main thread; calls
// come from any thread, one at a time. Without End before its destruction this process leaves
// because of an error: it waits until the others of its host have told theirs, at most some
// seconds, and the whole mpirun ends.
class MpiSession {
 public:
  struct Options {
    // Of every exchange, see Comm; more are set as soon as they are known.
    std::chrono::milliseconds deadline;
    // Takes every so many ranks for those of a host of their own (tests). 0: hosts are hosts.
    int ranks_per_host = 0;
    // Of all processes to begin. Who waits for longer says so and ends.
    std::chrono::seconds begin = std::chrono::seconds(600);
  };
  explicit MpiSession(const Options& options);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // Ranks of one host are neighbours. Rank 0 is MPI's.
  Comm* world() const;
  // This process is about to leave because of `why`: so do the others.
  void Fail(const std::string& why);
  // The work is done on all ranks: throws Error(kIo) when they do not say so too.
  void End();

 private:
  struct State;
  std::unique_ptr<State> state_;
  bool ended_ = false;
};

}  // namespace deepinfer
