// chat: a conversation on a terminal or over a pipe.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "chat/output_cuts.h"
#include "chat/render.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"
#include "engine/engine.h"

namespace deepinfer {
namespace {

constexpr const char* kHelp =
    "/exit   end (also Ctrl-D, or Ctrl-C here)\n"
    "/reset  forget the conversation\n"
    "/help   this text\n"
    "Ctrl-C ends an answer that is being written.\n";

struct ChatFlags {
  std::string system, effort;
  bool thinking = true;
  SamplingFlags sampling;
};

JsonValue Text(std::string text) {
  JsonValue value;
  value.kind = JsonValue::Kind::kString;
  value.text = std::move(text);
  return value;
}

JsonValue MessageJson(const char* role, const std::string& content, const std::string& reasoning) {
  JsonValue message;
  message.kind = JsonValue::Kind::kObject;
  message.keys = {"role", "content"};
  message.items = {Text(role), Text(content)};
  if (!reasoning.empty()) {
    message.keys.push_back("reasoning_content");
    message.items.push_back(Text(reasoning));
  }
  return message;
}

// The messages so far, and how they become prompts.
class Conversation {
 public:
  explicit Conversation(const ChatFlags& flags) : system_(flags.system) {
    request_.thinking = flags.thinking;
    if (!flags.effort.empty()) {
      if (!flags.thinking) {
        throw Error(Code::kInvalid, "--effort: expected thinking mode, found --no-thinking");
      }
      const std::optional<JsonValue> json = TryParseJson(flags.effort);
      ApplyEffort(json && json->AsInteger() ? *json : Text(flags.effort), EffortTable(), &request_);
    }
    Reset();
  }

  void Reset() {
    request_.messages = {};
    request_.messages.kind = JsonValue::Kind::kArray;
    if (!system_.empty()) Add("system", system_);
  }
  void Add(const char* role, const std::string& content, const std::string& reasoning = "") {
    request_.messages.items.push_back(MessageJson(role, content, reasoning));
  }
  void TakeBack() { request_.messages.items.pop_back(); }

  // What the model wrote, with its reasoning apart.
  void AddAnswer(const std::string& text) {
    OutputParserOptions options;
    options.thinking = request_.thinking;
    const ParsedOutput output = ParseOutput(options, text);
    Add("assistant", output.content, output.reasoning);
  }

  std::vector<TokenId> Prompt(const Tokenizer& tokenizer) const {
    return tokenizer.EncodeSpans(RenderChat(request_).spans);
  }

 private:
  std::string system_;
  ChatRequest request_;
};

// Writes the answer to the last message and adds it. A refused or failed request throws Error.
void Answer(Engine* engine, const Executor& executor, Request request, Conversation* conversation,
            Output* out) {
  request.prompt = conversation->Prompt(executor.tokenizer());
  const int64_t n_prompt = std::ssize(request.prompt);
  const RequestId id = engine->Submit(std::move(request));
  SequenceResult result;
  StatusLine status;
  TakeInterrupt();  // one that came earlier is not meant for this answer
  while (!engine->idle()) {
    for (const Delta& delta : engine->Step()) {
      status.Clear();
      result.Append(delta);
      out->Write(delta.text);
      out->Flush();
    }
    ShowPrompt(*engine, id, n_prompt, &status);
    if (TakeInterrupt()) engine->Cancel(id);
  }
  out->Write("\n");
  out->Flush();
  if (!result.error.empty()) throw Error(Code::kCorrupt, result.error);
  conversation->AddAnswer(result.text);
}

void RunChat(const EngineOptions& options, const ChatFlags& flags, Comm* world) {
  Conversation conversation(flags);
  const std::unique_ptr<Executor> executor = LoadModel(options, world);
  Engine engine(executor.get());
  const Request request = MakeRequest(flags.sampling, executor->model_dir());
  CatchInterrupts();
  Output out;
  LineReader input;
  const std::string sign = isatty(0) != 0 ? "> " : "";
  std::string line;
  for (;;) {
    out.Write(sign);
    out.Flush();
    const LineReader::End end = input.Read(&line);
    if (end == LineReader::End::kInterrupt) {
      out.Write("\n");
      out.Flush();
      throw CLI::RuntimeError(kInterruptedStatus);
    }
    if (end == LineReader::End::kEndOfInput || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/reset") {
      conversation.Reset();
    } else if (line == "/help") {
      out.Write(kHelp);
    } else if (line[0] == '/') {
      fmt::print(stderr, "deepinfer: expected /exit, /reset or /help, found {}\n", line);
    } else {
      conversation.Add("user", line);
      try {
        Answer(&engine, *executor, request, &conversation, &out);
      } catch (const Error& e) {
        if (e.code() == Code::kIo) throw;
        conversation.TakeBack();
        fmt::print(stderr, "deepinfer: {}\n", e.what());
      }
    }
  }
  if (!sign.empty()) out.Write("\n");
  out.Flush();
}

}  // namespace

void AddChat(CLI::App& app, Comm* world) {
  CLI::App* command = app.add_subcommand("chat", "Talk with the model, line by line");
  auto flags = std::make_shared<ChatFlags>();
  const std::shared_ptr<EngineOptions> engine = AddEngineFlags(command);
  command->add_option("--system", flags->system, "System message");
  command->add_flag("--thinking,!--no-thinking", flags->thinking,
                    "Let the model reason in front of its answer (the default)");
  command->add_option("--effort", flags->effort,
                      "How long to reason: low, high, xhigh, max or 1 to 100");
  AddSamplingFlags(command, &flags->sampling);
  command->callback([flags, engine, world] { RunChat(*engine, *flags, world); });
}

}  // namespace deepinfer
