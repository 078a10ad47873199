// tokenize, detokenize and render: text, token ids and chat requests, one JSON object a line out.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "chat/render.h"
#include "checkpoint/model_dir.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/output.h"
#include "config/model_config.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

struct TextFlags {
  std::shared_ptr<EngineOptions> engine;
  std::string text = "-";
  std::string jsonl;
  bool plain = false, skip_special = false;
};

// The tokenizer of a model directory, checked against the config that lies beside it.
Tokenizer LoadTokenizer(const std::string& model) {
  const std::string dir = ResolveModelDir(model, HubCacheDir());
  Tokenizer tokenizer = Tokenizer::Load(dir + "/tokenizer.json");
  const std::string config_path = dir + "/config.json";
  if (std::filesystem::exists(config_path)) {
    const int64_t vocab_size = ModelConfig::Load(config_path).vocab_size;
    if (tokenizer.vocab_size() > vocab_size) {
      throw Error(Code::kInvalid, fmt::format("{}: vocab_size is {}, tokenizer.json has {} tokens",
                                              config_path, vocab_size, tokenizer.vocab_size()));
    }
  }
  return tokenizer;
}

std::string ReadArgument(const std::string& argument) {
  if (argument != "-") return argument;
  return ReadInput("text", argument);
}

std::vector<TokenId> ReadIds(const JsonValue& list) {
  if (!list.is_array()) throw Error(Code::kInvalid, "ids: expected a list of integers");
  std::vector<TokenId> ids;
  for (const JsonValue& item : list.items) {
    const std::optional<int64_t> id = item.AsInteger();
    if (!id || *id < INT32_MIN || *id > INT32_MAX) {
      throw Error(Code::kInvalid, "ids: expected a list of token ids, found " + DumpJson(item));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

// One answer: from the text argument, or from a line of a JSONL file that has been parsed.
using FromText = std::function<ordered_json(const std::string&)>;
using FromLine = std::function<ordered_json(const JsonValue&)>;

// Prints one line for the text argument, or one for each line of the JSONL file; there a line that
// fails is answered by
// {"error": ...} and the rest goes on.
void Answer(const TextFlags& flags, const FromText& from_text, const FromLine& from_line) {
  Output out;
  if (flags.jsonl.empty()) {
    out.Write(from_text(ReadArgument(flags.text)).dump() + "\n");
    out.Flush();
    return;
  }
  std::istringstream lines(ReadInput("--jsonl", flags.jsonl));
  for (std::string line; std::getline(lines, line);) {
    ordered_json answer;
    try {
      answer = from_line(ParseJson(line, "line"));
    } catch (const Error& error) {
      answer["error"] = error.what();
    }
    out.Write(answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  }
  out.Flush();
}

void Tokenize(const TextFlags& flags) {
  const Tokenizer tokenizer = LoadTokenizer(flags.engine->model);
  const auto encode = [&](const std::string& text) {
    ordered_json answer;
    answer["ids"] = flags.plain ? tokenizer.EncodePlain(text) : tokenizer.Encode(text);
    return answer;
  };
  Answer(flags, encode, [&](const JsonValue& line) {
    const JsonValue* text = line.Find("text");
    if (text == nullptr || !text->is_string())
      throw Error(Code::kInvalid, "text: expected a string");
    return encode(text->text);
  });
}

void Detokenize(const TextFlags& flags) {
  const Tokenizer tokenizer = LoadTokenizer(flags.engine->model);
  const auto decode = [&](const JsonValue& ids) {
    ordered_json answer;
    answer["text"] = tokenizer.Decode(ReadIds(ids), flags.skip_special);
    return answer;
  };
  Answer(
      flags, [&](const std::string& text) { return decode(ParseJson(text, "ids")); },
      [&](const JsonValue& line) {
        const JsonValue* ids = line.Find("ids");
        return decode(ids == nullptr ? JsonValue() : *ids);
      });
}

// Lines of a JSONL file may carry more fields (names, expected results); what is typed may not.
JsonValue ParseTypedRequest(const std::string& text) {
  const JsonValue request = ParseJson(text, "messages");
  for (const std::string& key : request.keys) {
    if (key == "api" || key == "messages" || key == "tools" || key == "kwargs") continue;
    throw Error(Code::kInvalid,
                fmt::format("messages: expected api, messages, tools or kwargs, found '{}'", key));
  }
  return request;
}

void Render(const TextFlags& flags) {
  const Tokenizer tokenizer = LoadTokenizer(flags.engine->model);
  const auto render = [&](const JsonValue& request) {
    const ChatPrompt prompt = RenderChat(ParseChatRequest(request));
    ordered_json answer;
    answer["prompt"] = prompt.Text();
    answer["ids"] = tokenizer.EncodeSpans(prompt.spans);
    return answer;
  };
  Answer(
      flags, [&](const std::string& text) { return render(ParseTypedRequest(text)); }, render);
}

// What the three commands have in common.
CLI::App* AddCommand(CLI::App& app, const char* name, const char* description,
                     const char* text_help, const char* line_help,
                     const std::shared_ptr<TextFlags>& flags, void (*run)(const TextFlags&)) {
  CLI::App* command = app.add_subcommand(name, description);
  flags->engine = AddModelFlag(command);
  CLI::Option* text = command->add_option("text", flags->text, text_help);
  CLI::Option* jsonl = command->add_option("--jsonl", flags->jsonl, line_help);
  jsonl->excludes(text);
  command->callback([flags, run] { run(*flags); });
  return command;
}

}  // namespace

void AddTokenize(CLI::App& app) {
  auto flags = std::make_shared<TextFlags>();
  CLI::App* command =
      AddCommand(app, "tokenize", "Text to token ids", "The text; - or nothing: standard input",
                 "File (- for standard input) with one {\"text\": ...} a line", flags, Tokenize);
  command->add_flag("--plain", flags->plain,
                    "Spellings of added tokens such as <think> are ordinary text");
}

void AddDetokenize(CLI::App& app) {
  auto flags = std::make_shared<TextFlags>();
  CLI::App* command = AddCommand(
      app, "detokenize", "Token ids to text", "A JSON list of ids; - or nothing: standard input",
      "File (- for standard input) with one {\"ids\": [...]} a line", flags, Detokenize);
  command->add_flag("--skip-special", flags->skip_special,
                    "Leave out tokens that the file marks special");
}

void AddRender(CLI::App& app) {
  AddCommand(app, "render", "Chat messages to the prompt and its token ids",
             "A JSON list of messages, or an object with messages, tools and kwargs; - or nothing: "
             "standard input",
             "File (- for standard input) with one such object a line",
             std::make_shared<TextFlags>(), Render);
}

}  // namespace deepinfer
