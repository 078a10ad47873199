#include "verify/verify.h"

#include <CLI/CLI.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"

namespace deepinfer {

void AddVerify(CLI::App& app, Comm* world) {
  CLI::App* command =
      app.add_subcommand("verify", "Compare a small model with golden files; 1 when they differ");
  auto engine = AddModelFlag(command);
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("--golden", options->golden_dir, "Directory of golden files")->required();
  command->add_option(
      "--name", options->name,
      "First part of the golden files' names; default: name of the model directory");
  command
      ->add_option("--chunk", options->chunk, "Most prompt tokens of one step; 0: the whole prompt")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--threads", engine->threads,
                   "Threads; 0: one per physical core (DEEPINFER_THREADS)")
      ->check(CheckInteger)
      ->capture_default_str();
  command->add_option("--isa", engine->isa, "auto, generic, avx2, avx512 or amx (DEEPINFER_ISA)")
      ->capture_default_str();
  AddRanksFlag(command, engine.get());
  command->add_option("--numerics", engine->numerics, "Rounding points: release, fp32 or trn2")
      ->capture_default_str();
  command->callback([engine, options, world] {
    engine->Validate();
    options->engine = *engine;
    options->world = world;
    const Report report = Verify(*options);
    Output out;
    out.Write(report.Text());
    out.Flush();
    if (!report.mismatches().empty()) throw CLI::RuntimeError(1);
  });
}

}  // namespace deepinfer
