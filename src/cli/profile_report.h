// --profile and --trace: where the time of steps went.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/limits.h"
#include "engine/executor.h"
#include "obs/census.h"
#include "obs/trace.h"

namespace CLI {
class App;
}

namespace deepinfer {

struct ProfileFlags {
  bool profile = false;
  std::string trace_file;
};
// Adds --profile and --trace.
void AddProfileFlags(CLI::App* command, ProfileFlags* flags);

// Watches an executor while it lives, if a flag asks for it.
class Profiler {
 public:
  Profiler(Executor* executor, const ProfileFlags& flags);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // To be called after every step.
  void AddStep();

  // Tables of decode steps, of the others (prompts) and of drafts if there were any, and a line for
  // the exchanges of ranks, or "" without --profile. Measures the limits of the machine, after the
  // steps.
  std::string Report() const;
  // Writes the file of --trace, if there is one.
  void WriteTrace() const;

 private:
  Executor& executor_;
  ProfileFlags flags_;
  StepProfile step_, draft_step_;
  Census decode_, prompt_, draft_;
  Trace trace_;
  CommStats exchanges_;
  int64_t n_steps_ = 0;
};

// What ranks exchanged in a step of the engine with its draft; "" without calls.
std::string ExchangesLine(const CommStats& stats, int64_t steps);

// Table by phase, longest first, and by kind of layer: time, bytes and share of the limit.
std::string CensusReport(const Census& census, const std::string& title, const ModelConfig& config,
                         const MachineLimits& limits);

// Seconds that reading so many bytes or computing so many operations takes at least.
double BoundSeconds(double bytes, double flops, const MachineLimits& limits);

}  // namespace deepinfer
