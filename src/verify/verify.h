// The verification of a loaded model against golden sets, as the verify command and the golden
// tests run it.
#pragma once

#include <cstdint>
#include <string>

#include "config/options.h"
#include "parallel/comm.h"
#include "verify/report.h"

namespace deepinfer {

struct VerifyOptions {
  // Model, numerics, isa, threads and layout are used; sizes are chosen to fit the sets.
  EngineOptions engine;
  std::string golden_dir;
  // First part of the golden files' names; empty: the last part of the model directory's name.
  std::string name;
  // Most rows of a step; 0: a prompt is one step.
  int64_t chunk = 0;
  Comm* world = nullptr;  // as in ExecutorOptions
};

// Replays every golden set of the model and its numerics mode. Throws Error when there is none,
// when a file is not what it should be, or when the model cannot be loaded.
Report Verify(const VerifyOptions& options);

}  // namespace deepinfer
