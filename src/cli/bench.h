// The sub-commands of bench. Each Add function registers one, as those of commands.h do.
#pragma once

namespace CLI {
class App;
}

namespace deepinfer {

class Comm;

void AddBenchDrafts(CLI::App& bench, Comm* world);
void AddBenchKernels(CLI::App& bench);
void AddBenchLatency(CLI::App& bench, Comm* world);
void AddBenchStep(CLI::App& bench, Comm* world);
void AddBenchThroughput(CLI::App& bench, Comm* world);

}  // namespace deepinfer
