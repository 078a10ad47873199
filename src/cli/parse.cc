// parse: what a model wrote, taken apart into reasoning, content and tool calls.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "chat/output_cuts.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/output.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

struct ParseFlags {
  std::string jsonl, tools, cuts;
};

// Lists of tools that lines may name: from --tools, or from parse_tools.json beside the input.
JsonValue ReadToolLists(const ParseFlags& flags) {
  if (!flags.tools.empty()) return ParseJson(ReadInput("--tools", flags.tools), flags.tools);
  const std::filesystem::path beside =
      std::filesystem::path(flags.jsonl).replace_filename("parse_tools.json");
  if (flags.jsonl == "-" || !std::filesystem::exists(beside)) return {};
  return ParseJson(ReadInput("--tools", beside), beside);
}

OutputParserOptions ReadOptions(const JsonValue& line, const JsonValue& tool_lists) {
  OutputParserOptions options;
  if (const JsonValue* thinking = line.Find("thinking")) {
    if (thinking->kind != JsonValue::Kind::kBool)
      throw Error(Code::kInvalid, "thinking: expected true or false, found " + DumpJson(*thinking));
    options.thinking = thinking->boolean;
  }
  if (const JsonValue* tools = line.Find("tools")) {
    const JsonValue* list = tools->is_string() ? tool_lists.Find(tools->text) : tools;
    if (list == nullptr || !list->is_array()) {
      throw Error(Code::kInvalid,
                  "tools: expected a list of tools, or the name of one in the file of --tools, "
                  "found " +
                      DumpJson(*tools));
    }
    options.tools = *list;
  }
  const JsonValue* choice = line.Find("tool_choice");
  options.drop_calls = choice != nullptr && choice->text == "none";
  return options;
}

ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

ordered_json OutputJson(const ParsedOutput& output, std::string ParsedOutput::Call::*arguments) {
  ordered_json calls = ordered_json::array();
  for (const ParsedOutput::Call& call : output.calls)
    calls.push_back({{"name", call.name}, {"arguments", call.*arguments}});
  return {{"reasoning", TextOrNull(output.reasoning)},
          {"content", TextOrNull(output.content)},
          {"tool_calls", std::move(calls)}};
}

// Returns the answer to a line, and counts it when cutting it changes the result.
ordered_json ParseLine(const std::string& text, const JsonValue& tool_lists, bool cuts,
                       int* n_different) {
  const JsonValue line = ParseJson(text, "line");
  const JsonValue* output = line.Find("output");
  if (output == nullptr || !output->is_string())
    throw Error(Code::kInvalid, "output: expected a string");
  const OutputParserOptions options = ReadOptions(line, tool_lists);
  ordered_json answer =
      OutputJson(ParseOutput(options, output->text), &ParsedOutput::Call::arguments);
  if (!cuts) return answer;
  const std::optional<CutDifference> found = FindCutDifference(options, output->text);
  ordered_json difference;
  if (found) {
    ++*n_different;
    difference = {{"cut", found->cut < 0 ? ordered_json("characters") : ordered_json(found->cut)},
                  {"result", OutputJson(found->result, &ParsedOutput::Call::sent)}};
  }
  answer["difference"] = std::move(difference);
  return answer;
}

void Parse(const ParseFlags& flags) {
  const JsonValue tool_lists = ReadToolLists(flags);
  Output out;
  std::istringstream lines(ReadInput("--jsonl", flags.jsonl));
  int n_lines = 0, n_different = 0;
  for (std::string line; std::getline(lines, line); ++n_lines) {
    ordered_json answer;
    try {
      answer = ParseLine(line, tool_lists, flags.cuts == "all", &n_different);
    } catch (const Error& error) {
      answer["error"] = error.what();
    }
    out.Write(answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  }
  out.Flush();
  if (n_different > 0) {
    throw Error(Code::kCorrupt, fmt::format("--cuts: {} of {} lines give another result when cut",
                                            n_different, n_lines));
  }
}

}  // namespace

void AddParse(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "parse", "The text of an answer to reasoning, content and tool calls, one line each");
  auto flags = std::make_shared<ParseFlags>();
  command
      ->add_option("--jsonl", flags->jsonl,
                   "File (- for standard input) with one object a line: output, and perhaps "
                   "thinking, tools, tool_choice")
      ->required();
  command->add_option("--tools", flags->tools,
                      "File with an object of tool lists, which lines may name (default: "
                      "parse_tools.json beside the input, if it is there)");
  command
      ->add_option("--cuts", flags->cuts,
                   "all: also parse every line in every two pieces and character by character, "
                   "and report the first difference")
      ->check(CLI::IsMember({"all"}));
  command->callback([flags] { Parse(*flags); });
}

}  // namespace deepinfer
