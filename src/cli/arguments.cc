#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace deepinfer {

std::vector<std::string> NormalizeArguments(const CLI::App& app, std::vector<std::string> args) {
  const CLI::App* command = &app;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string& arg = args[i];
    if (arg == "--") break;
    if (arg.size() < 2 || arg[0] != '-') {
      const auto named =
          command->get_subcommands([&arg](const CLI::App* sub) { return sub->get_name() == arg; });
      if (!named.empty()) command = named.front();
      continue;
    }
    const size_t name_end = std::min(arg.find('='), arg.size());
    if (arg.starts_with("--"))
      std::replace(arg.begin(), arg.begin() + static_cast<std::ptrdiff_t>(name_end), '_', '-');
    const CLI::Option* option = command->get_option_no_throw(arg.substr(0, name_end));
    if (option != nullptr && option->get_items_expected_min() > 0 && name_end == arg.size()) ++i;
  }
  return args;
}

}  // namespace deepinfer
