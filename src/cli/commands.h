// The sub-commands of the program. Each Add function registers one with its options; the work runs
// as the callback of CLI::App::parse and reports bad input by throwing Error.
#pragma once

namespace CLI {
class App;
}

namespace deepinfer {

class Comm;

void AddInspect(CLI::App& app);
// world: the ranks of an mpirun, of which this is rank 0, or null.
void AddGenerate(CLI::App& app, Comm* world);
void AddChat(CLI::App& app, Comm* world);
void AddServe(CLI::App& app, Comm* world);
void AddVerify(CLI::App& app, Comm* world);
void AddTokenize(CLI::App& app);
void AddDetokenize(CLI::App& app);
void AddRender(CLI::App& app);
void AddParse(CLI::App& app);
void AddPlan(CLI::App& app);
void AddBench(CLI::App& app, Comm* world);

}  // namespace deepinfer
