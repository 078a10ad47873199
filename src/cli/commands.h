// The sub-commands of the program. Each Add function registers one with its options; the work runs
// as the callback of CLI::App::parse and reports bad input by throwing Error.
#pragma once

namespace CLI {
class App;
}

namespace deepinfer {

class Comm;

void AddInspect(CLI::App& app);
// world: the ranks of an mpirun, or null.
void AddGenerate(CLI::App& app, Comm* world);
void AddChat(CLI::App& app);
void AddServe(CLI::App& app);
void AddVerify(CLI::App& app);
void AddTokenize(CLI::App& app);
void AddDetokenize(CLI::App& app);
void AddRender(CLI::App& app);
void AddParse(CLI::App& app);
void AddPlan(CLI::App& app);
void AddBench(CLI::App& app);

}  // namespace deepinfer
