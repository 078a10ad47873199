// The sub-commands of bench. Each Add function registers one, as those of commands.h do.
#pragma once

namespace CLI {
class App;
}

namespace deepinfer {

void AddBenchDrafts(CLI::App& bench);
void AddBenchKernels(CLI::App& bench);
void AddBenchLatency(CLI::App& bench);
void AddBenchStep(CLI::App& bench);
void AddBenchThroughput(CLI::App& bench);

}  // namespace deepinfer
