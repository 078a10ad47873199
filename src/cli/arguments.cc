#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

namespace deepinfer {
namespace {

template <class T>
std::string Check(const std::string& text, const char* expected) {
  T value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return std::string("expected ") + expected + ", found \"" + text + "\"";
}

}  // namespace

std::string CheckInteger(const std::string& text) { return Check<int64_t>(text, "an integer"); }
std::string CheckReal(const std::string& text) { return Check<double>(text, "a number"); }

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
