// Options that several sub-commands share, and the way from --model to an open checkpoint.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "config/model_config.h"
#include "config/options.h"

namespace CLI {
class App;
}

namespace deepinfer {

// Adds --model only. The value is there after parsing; the environment gives the default. The
// caller's callback holds the pointer, which keeps the storage alive.
std::shared_ptr<EngineOptions> AddModelFlag(CLI::App* command);

// Adds --ranks to a command that loads a model: while it is read it throws RanksWanted where they
// have not been started.
void AddRanksFlag(CLI::App* command, EngineOptions* options);

// Adds every option of EngineOptions. The callback of the command calls Validate().
std::shared_ptr<EngineOptions> AddEngineFlags(CLI::App* command);

struct OpenedModel {
  std::string dir;
  ModelConfig config;
  Checkpoint checkpoint;
};

// One warning line on standard error about tensors of `dir` that the config does not use, if any.
void WarnUnused(std::span<const std::string> tensors, const std::string& dir);

// Resolves `model` (a directory or a hub name), reads its config and opens its checkpoint, with
// the warning above.
OpenedModel OpenModel(const std::string& model);

}  // namespace deepinfer
