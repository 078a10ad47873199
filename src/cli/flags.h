// Options that several sub-commands share, and the way from --model to an open checkpoint.
#pragma once

#include <memory>
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

// Adds every option of EngineOptions. The callback of the command calls Validate().
std::shared_ptr<EngineOptions> AddEngineFlags(CLI::App* command);

struct OpenedModel {
  std::string dir;
  ModelConfig config;
  Checkpoint checkpoint;
};

// Resolves `model` (a directory or a hub name), reads its config and opens its checkpoint. Tensors
// the config does not use are reported in one warning line on standard error.
OpenedModel OpenModel(const std::string& model);

}  // namespace deepinfer
