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

// Checks for options that are numbers: "" when all of the text is one (a 64-bit integer, a real
// number), else what was expected. On its own CLI11 reads no text as 0, " 5" and "0x10" as
// integers, and cuts what is too large.
std::string CheckInteger(const std::string& text);
std::string CheckReal(const std::string& text);

}  // namespace deepinfer
