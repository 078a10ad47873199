// Command line arguments as CLI11 wants them.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace deepinfer {

// In names of long options '_' means '-': `--max_model_len=7` becomes `--max-model-len=7`. Values
// stay as they are, also values that look like options, and so does everything behind `--`.
std::vector<std::string> NormalizeArguments(const CLI::App& app, std::vector<std::string> args);

}  // namespace deepinfer
