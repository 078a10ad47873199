// bench: what this machine reaches. Each sub-command is a file of its own.
#include "cli/bench.h"

#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace deepinfer {

void AddBench(CLI::App& app, Comm* world) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine and the engine on it");
  bench->require_subcommand(1);
  AddBenchKernels(*bench);
  AddBenchStep(*bench, world);
  AddBenchDrafts(*bench, world);
  AddBenchLatency(*bench, world);
  AddBenchThroughput(*bench, world);
}

}  // namespace deepinfer
