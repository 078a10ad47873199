// serve: the HTTP server.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "server/server.h"

namespace deepinfer {
namespace {

// Sets the options that the command line does not give from a file of `option = value` lines.
void ReadConfig(const std::string& path, CLI::App* command) {
  std::ifstream file(path);
  if (!file) {
    throw Error(Code::kIo,
                fmt::format("--config: expected a readable file, found none at {}", path));
  }
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(file)) {
    CLI::Option* option = command->get_option_no_throw("--" + item.fullname());
    if (option == nullptr || item.name == "config" || item.name == "help") {
      throw Error(Code::kInvalid,
                  fmt::format("{}: expected options of serve, found {}", path, item.fullname()));
    }
    if (option->count() > 0) continue;
    // A list without elements, as [] would be on the command line.
    option->add_result(item.inputs.empty() ? std::vector<std::string>{"[]"} : item.inputs);
    option->run_callback();
  }
}

// Each one an origin, or a JSON list of them.
std::vector<std::string> ReadOrigins(const std::vector<std::string>& texts) {
  std::vector<std::string> origins;
  for (const std::string& text : texts) {
    if (!text.starts_with("[")) {
      origins.push_back(text);
      continue;
    }
    const nlohmann::json list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto is_text = [](const nlohmann::json& origin) { return origin.is_string(); };
    if (!list.is_array() || !std::ranges::all_of(list, is_text)) {
      throw Error(Code::kInvalid,
                  fmt::format("--allowed-origins: expected a list of texts, found {}",
                              text.substr(0, 100)));
    }
    for (const nlohmann::json& origin : list) origins.push_back(origin);
  }
  return origins;
}

void RunServe(EngineOptions engine, ServerOptions options, Comm* world) {
  if (engine.model.empty()) throw Error(Code::kInvalid, "--model: expected a model, found none");
  if (options.served_model_names.empty()) options.served_model_names.push_back(engine.model);
  engine.Validate();
  Serve(options,
        {.name = engine.model, .load = [&engine, world] { return LoadModel(engine, world); }});
}

}  // namespace

void AddServe(CLI::App& app, Comm* world) {
  CLI::App* command = app.add_subcommand("serve", "Serve the OpenAI API over HTTP");
  auto options = std::make_shared<ServerOptions>();
  const std::shared_ptr<EngineOptions> engine = AddEngineFlags(command);
  command->add_option("model_dir", engine->model, "The same as --model");
  engine->prefill_slowdown = 2;
  command
      ->add_option("--prefill-slowdown", engine->prefill_slowdown,
                   "How many times as long 20 tokens of an answer may take while prompts are "
                   "computed; 0: no limit")
      ->capture_default_str();
  command->add_option("--host", options->host, "Address to listen on; 0.0.0.0: all")
      ->capture_default_str();
  command->add_option("--port", options->port, "Port; 0: any free one")
      ->check(CheckInteger)
      ->capture_default_str();
  command->add_option("--served-model-name", options->served_model_names,
                      "Names of the model in requests (default: --model)");
  command->add_option("--api-key", options->api_keys,
                      "Keys of which clients must send one (repeatable)");
  auto origins = std::make_shared<std::vector<std::string>>();
  command
      ->add_option("--allowed-origins", *origins,
                   "Origins of web pages that may use the server: [\"*\"] (all, as without the "
                   "option), [\"https://example.org\"], [] (none); repeatable")
      ->allow_extra_args(false);  // which would take the brackets
  command->add_flag("--disable-log-requests{false}", options->log_requests,
                    "Do not write a line for each request");
  command->add_option("--log-format", options->log_format, "Lines on standard error: text or json")
      ->capture_default_str();
  command
      ->add_option("--shutdown-timeout", options->shutdown_timeout_s,
                   "Seconds that running requests get after the signal to stop")
      ->check(CheckInteger)
      ->capture_default_str();
  auto config = std::make_shared<std::string>();
  command->add_option("--config", *config,
                      "File of further options, a line `option = value` each (TOML)");
  command->callback([options, engine, origins, config, command, world] {
    if (!config->empty()) ReadConfig(*config, command);
    if (!origins->empty()) options->allowed_origins = ReadOrigins(*origins);
    RunServe(*engine, *options, world);
  });
}

}  // namespace deepinfer
