// generate: prompts in, text or one JSON object out.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/json_value.h"
#include "checkpoint/safetensors.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/draft_report.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/profile_report.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"
#include "cli/timing.h"
#include "engine/engine.h"
#include "obs/bandwidth.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

struct GenerateFlags {
  std::vector<std::string> prompts, prompt_files, prompt_ids;
  SamplingFlags sampling;
  std::optional<int> logprobs;
  bool ignore_eos = false, json = false;
  ProfileFlags profile;
};

// Text that gets a begin-of-sentence token, or ids that are taken as they are.
struct Prompt {
  std::string text;
  std::vector<TokenId> ids;
};

std::vector<TokenId> ReadPromptIds(const std::string& text) {
  const auto refuse = [&](const std::string& found) {
    throw Error(
        Code::kInvalid,
        "--prompt-ids: expected a list of token ids such as [0,17], found " + Printable(found));
  };
  const std::optional<JsonValue> list = TryParseJson(text);
  if (!list || !list->is_array()) refuse(text);
  std::vector<TokenId> ids;
  for (const JsonValue& item : list->items) {
    const std::optional<int64_t> id = item.AsInteger();
    if (!id || *id < INT32_MIN || *id > INT32_MAX) refuse(DumpJson(item));
    ids.push_back(static_cast<TokenId>(*id));
  }
  if (ids.empty()) refuse("an empty list");
  return ids;
}

// In the order of the command line.
std::vector<Prompt> ReadPrompts(const CLI::App& command, const GenerateFlags& flags) {
  std::vector<Prompt> prompts;
  size_t n_texts = 0, n_files = 0, n_ids = 0;
  for (const CLI::Option* option : command.parse_order()) {
    if (option->check_name("--prompt")) {
      prompts.push_back({flags.prompts[n_texts++], {}});
    } else if (option->check_name("--prompt-file")) {
      prompts.push_back({ReadInput("--prompt-file", flags.prompt_files[n_files++]), {}});
    } else if (option->check_name("--prompt-ids")) {
      prompts.push_back({"", ReadPromptIds(flags.prompt_ids[n_ids++])});
    }
  }
  if (prompts.empty()) {
    throw Error(Code::kInvalid, "expected --prompt, --prompt-file or --prompt-ids, found none");
  }
  return prompts;
}

struct Sequence {
  RequestId id;
  std::vector<TokenId> prompt;
  SequenceResult result;
};

// Prints answers as they come.
class Printer {
 public:
  // json: nothing until Finish. Of several sequences each is printed as a whole.
  Printer(size_t n_sequences, bool json) : streams_(n_sequences == 1 && !json), json_(json) {}

  void Add(size_t index, const Sequence& sequence, const Delta& delta) {
    if (json_) return;
    const bool failed = delta.finish == FinishReason::kError;  // told on standard error
    if (streams_) {
      out_.Write(delta.text);
      begun_ = begun_ || !delta.text.empty();
      if (delta.finish && (begun_ || !failed)) out_.Write("\n");
      out_.Flush();
    } else if (delta.finish && !failed) {
      PrintWhole(index, sequence);
    }
  }

  // Ctrl-C: what there is so far.
  void Interrupt(const std::vector<Sequence>& sequences) {
    if (streams_) out_.Write("\n");
    for (size_t i = 0; i < sequences.size() && !streams_ && !json_; ++i) {
      if (!sequences[i].result.finish) PrintWhole(i, sequences[i]);
    }
    out_.Flush();
  }

  Output& out() { return out_; }

 private:
  void PrintWhole(size_t index, const Sequence& sequence) {
    const std::optional<FinishReason>& finish = sequence.result.finish;
    out_.Write(fmt::format("=== prompt {} ({})\n{}\n", index + 1,
                           finish ? FinishReasonName(*finish) : "interrupted",
                           sequence.result.text));
    out_.Flush();
  }

  Output out_;
  bool streams_, json_, begun_ = false;
};

ordered_json LogprobsJson(const SequenceResult& result, const Tokenizer& tokenizer) {
  ordered_json list = ordered_json::array();
  for (const TokenLogprob& t : result.logprobs) {
    ordered_json top = ordered_json::array();
    for (const auto& [id, logprob] : t.top)
      top.push_back({{"id", id}, {"token", tokenizer.TokenBytes(id)}, {"logprob", logprob}});
    list.push_back({{"id", t.id},
                    {"token", tokenizer.TokenBytes(t.id)},
                    {"logprob", t.logprob},
                    {"rank", t.rank},
                    {"top", std::move(top)}});
  }
  return list;
}

std::string ResultJson(const std::vector<Sequence>& sequences, bool logprobs, const Timing& timing,
                       int64_t bytes_per_token, const Engine::Stats& stats,
                       const Tokenizer& tokenizer) {
  ordered_json list = ordered_json::array();
  for (const Sequence& s : sequences) {
    ordered_json entry = {
        {"prompt_ids", s.prompt},
        {"token_ids", s.result.token_ids},
        {"text", s.result.text},
        {"finish_reason", s.result.finish ? FinishReasonName(*s.result.finish) : "interrupted"}};
    if (logprobs) entry["logprobs"] = LogprobsJson(s.result, tokenizer);
    list.push_back(std::move(entry));
  }
  ordered_json times = {{"prompt_tokens", timing.prompt_tokens},
                        {"output_tokens", timing.output_tokens},
                        {"prompt_tokens_per_s", timing.prompt_tokens_per_s},
                        {"ttft_s", timing.ttft_s},
                        {"tpot_s", nullptr},
                        {"bytes_per_token", bytes_per_token}};
  if (timing.tpot_s) times["tpot_s"] = *timing.tpot_s;
  const ordered_json json = {{"sequences", std::move(list)},
                             {"timing", std::move(times)},
                             {"speculative", SpeculativeJson(stats)}};
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// Returns false when Ctrl-C ended it.
bool Generate(Engine* engine, std::vector<Sequence>* sequences, Printer* printer,
              TimingRecorder* recorder, Profiler* profiler) {
  StatusLine status;
  while (!engine->idle()) {
    for (const Delta& delta : engine->Step()) {
      status.Clear();
      const auto it = std::ranges::find(*sequences, delta.id, &Sequence::id);
      it->result.Append(delta);
      recorder->Add(delta);
      printer->Add(static_cast<size_t>(it - sequences->begin()), *it, delta);
    }
    profiler->AddStep();
    for (const Sequence& s : *sequences) ShowPrompt(*engine, s.id, std::ssize(s.prompt), &status);
    if (TakeInterrupt()) return false;
  }
  return true;
}

void ThrowFirstError(const std::vector<Sequence>& sequences) {
  std::string sentence;
  int64_t n_failed = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].result.finish != FinishReason::kError) continue;
    if (++n_failed == 1) sentence = fmt::format("prompt {}: {}", i + 1, sequences[i].result.error);
  }
  if (n_failed == 0) return;
  if (n_failed > 1) sentence += fmt::format(" (and {} more prompts failed)", n_failed - 1);
  throw Error(Code::kCorrupt, sentence);
}

void WarnOfDraftFaults(const Engine::Stats& stats) {
  if (stats.n_draft_faults == 0) return;
  fmt::print(stderr, "deepinfer: warning: {} steps went on without drafts: {}\n",
             stats.n_draft_faults, stats.draft_fault);
}

// 0 and a warning when it cannot be measured: the answer is there.
double ReadBandwidth(int64_t threads) {
  try {
    return MeasureReadBandwidth(static_cast<int>(threads));
  } catch (const Error& e) {
    fmt::print(stderr, "deepinfer: warning: {}\n", e.what());
    return 0;
  }
}

void RunGenerate(const EngineOptions& options, const GenerateFlags& flags,
                 const std::vector<Prompt>& prompts, Comm* world) {
  const std::unique_ptr<Executor> executor = LoadModel(options, world);
  Engine engine(executor.get());
  Request request = MakeRequest(flags.sampling, executor->model_dir());
  request.ignore_eos = flags.ignore_eos;
  request.logprobs = flags.logprobs;
  std::vector<Sequence> sequences;
  int64_t prompt_tokens = 0;
  for (const Prompt& prompt : prompts) {
    request.prompt = prompt.ids.empty() ? EncodePrompt(*executor, prompt.text) : prompt.ids;
    prompt_tokens += std::ssize(request.prompt);
    sequences.push_back({engine.Submit(request), request.prompt, {}});
  }

  CatchInterrupts();
  Printer printer(sequences.size(), flags.json);
  Profiler profiler(executor.get(), flags.profile);
  TimingRecorder recorder;
  const bool complete = Generate(&engine, &sequences, &printer, &recorder, &profiler);
  if (!complete) printer.Interrupt(sequences);
  ThrowFirstError(sequences);
  WarnOfDraftFaults(engine.stats());

  const Timing timing = recorder.Summary(prompt_tokens);
  const Sequence& first = sequences.front();
  const int64_t bytes =
      executor->BytesPerToken(std::ssize(first.prompt) + std::ssize(first.result.token_ids));
  if (flags.json) {
    printer.out().Write(ResultJson(sequences, flags.logprobs.has_value(), timing, bytes,
                                   engine.stats(), executor->tokenizer()));
    printer.out().Flush();
  }
  if (!complete) throw CLI::RuntimeError(kInterruptedStatus);
  fmt::print(stderr, "{}", profiler.Report());
  profiler.WriteTrace();
  if (flags.json) return;
  // Sequences computed together share their reads, so the share is told for one alone.
  const bool alone = sequences.size() == 1 && timing.tpot_s;
  const double bandwidth = alone ? ReadBandwidth(executor->options().threads) : 0;
  fmt::print(stderr, "{}\n", TimingLine(timing, bandwidth > 0 ? bytes : 0, bandwidth));
}

}  // namespace

void AddGenerate(CLI::App& app, Comm* world) {
  CLI::App* command = app.add_subcommand("generate", "Continue prompts");
  auto flags = std::make_shared<GenerateFlags>();
  flags->sampling.max_tokens = 128;
  const std::shared_ptr<EngineOptions> engine = AddEngineFlags(command);
  command
      ->add_option("--prompt", flags->prompts,
                   "Text to continue (repeatable: a batch); begin-of-sentence is put in front")
      ->allow_extra_args(false);
  command
      ->add_option("--prompt-file", flags->prompt_files, "The same from a file; -: standard input")
      ->allow_extra_args(false);
  command
      ->add_option("--prompt-ids", flags->prompt_ids,
                   "The same as token ids, [0,17]; nothing is put in front")
      ->allow_extra_args(false);
  AddSamplingFlags(command, &flags->sampling);
  command->add_flag("--ignore-eos", flags->ignore_eos, "Go on after the end-of-sentence token");
  command
      ->add_option("--logprobs", flags->logprobs,
                   "Report log-probabilities and this many alternatives, 0 to 20 (with --json)")
      ->check(CheckInteger);
  command->add_flag("--json", flags->json, "Print one JSON object when all is done");
  AddProfileFlags(command, &flags->profile);
  command->callback([flags, engine, command, world] {
    if (flags->logprobs && !flags->json)
      throw Error(Code::kInvalid, "--logprobs: expected --json with it, found none");
    RunGenerate(*engine, *flags, ReadPrompts(*command, *flags), world);
  });
}

}  // namespace deepinfer
