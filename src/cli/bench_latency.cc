// bench latency, bench throughput: whole requests through the engine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/random.h"
#include "cli/arguments.h"
#include "cli/bench.h"
#include "cli/bench_flags.h"
#include "cli/draft_report.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/profile_report.h"
#include "cli/terminal.h"
#include "cli/timing.h"
#include "engine/engine.h"

namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;
using Ids = std::vector<TokenId>;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

struct RequestFlags {
  std::shared_ptr<BenchFlags> bench;
  std::string input_lens, batch_sizes, dataset;
  int64_t input_len = 128, output_len = 128, num_prompts = 3;
  ProfileFlags profile;
};

// Prompts nobody has seen before: random ids, or pieces of a text.
class PromptSource {
 public:
  PromptSource(const RequestFlags& flags, const Executor& executor) : config_(executor.config()) {
    if (flags.dataset.empty()) return;
    if (!executor.has_tokenizer())
      throw Error(Code::kInvalid, "--dataset: expected --model with it, found --synthetic");
    text_ = executor.tokenizer().Encode(ReadInput("--dataset", flags.dataset));
    file_ = flags.dataset;
  }

  Ids Next(int64_t n) {
    if (file_.empty()) return RandomIds(n, config_, NextRandom(&state_));
    if (std::ssize(text_) < n) {
      throw Error(Code::kInvalid,
                  fmt::format("--dataset: expected at least {} tokens in {}, found {}", n, file_,
                              text_.size()));
    }
    const auto choices = static_cast<uint64_t>(std::ssize(text_) - n + 1);
    const auto begin = text_.begin() + static_cast<int64_t>(NextRandom(&state_) % choices);
    Ids ids(begin, begin + n);
    ids[0] = config_.bos_token_id;
    return ids;
  }

 private:
  const ModelConfig& config_;
  Ids text_;
  std::string file_;
  uint64_t state_ = 1;
};

struct Batch {
  Timing timing;
  double seconds = 0;
};

// Computes the answers of all prompts together: greedy, `output_len` tokens each.
Batch RunBatch(Engine* engine, Profiler* profiler, const std::vector<Ids>& prompts,
               int64_t output_len) {
  Request request;
  request.sampling.temperature = 0;
  request.max_tokens = output_len;
  request.ignore_eos = true;
  int64_t prompt_tokens = 0;
  for (const Ids& prompt : prompts) {
    request.prompt = prompt;
    prompt_tokens += std::ssize(prompt);
    engine->Submit(request);
  }
  const Clock::time_point start = Clock::now();
  TimingRecorder recorder;
  while (!engine->idle()) {
    for (const Delta& delta : engine->Step()) {
      if (delta.finish == FinishReason::kError) throw Error(Code::kCorrupt, delta.error);
      recorder.Add(delta);
    }
    profiler->AddStep();
    if (TakeInterrupt()) throw CLI::RuntimeError(kInterruptedStatus);
  }
  return {recorder.Summary(prompt_tokens), Seconds(start)};
}

ordered_json MachineJson(const Executor& executor) {
  const EngineOptions& o = executor.options();
  return {{"isa", o.isa},
          {"threads", o.threads},
          {"numerics", o.numerics},
          {"routing", o.routing},
          {"layers", executor.config().num_hidden_layers},
          {"experts", executor.config().n_routed_experts}};
}

ordered_json TimingJson(const Timing& t) {
  ordered_json json = {{"ttft_s", t.ttft_s}, {"tpot_s", nullptr}};
  if (t.tpot_s) json["tpot_s"] = *t.tpot_s;
  return json;
}

std::string Ms(double seconds) { return fmt::format("{:>10.2f}", seconds * 1e3); }
std::string Ms(const std::optional<double>& seconds) {
  return seconds ? Ms(*seconds) : fmt::format("{:>10}", "-");
}

// Prompts of one length: each new, then the last one once more.
struct LatencyRow {
  int64_t input_len;
  std::vector<double> ttft_s, tpot_s;
  Timing repeated;

  std::optional<double> Tpot() const {
    return tpot_s.empty() ? std::nullopt : std::optional(Median(tpot_s));
  }
  std::string Line(int64_t output_len) const {
    const double ttft = Median(ttft_s);
    return fmt::format("{:>7} {:>7} {:>8} {} {} {} {:>10.1f} {} {}\n", input_len, output_len,
                       ttft_s.size(), Ms(ttft), Ms(std::ranges::max(ttft_s)), Ms(Tpot()),
                       static_cast<double>(input_len) / ttft, Ms(repeated.ttft_s),
                       Ms(repeated.tpot_s));
  }
  ordered_json Json(int64_t output_len) const {
    ordered_json json = {{"input_len", input_len},
                         {"output_len", output_len},
                         {"num_prompts", ttft_s.size()},
                         {"ttft_s", Median(ttft_s)},
                         {"ttft_max_s", std::ranges::max(ttft_s)},
                         {"tpot_s", nullptr},
                         {"repeated", TimingJson(repeated)}};
    if (Tpot()) json["tpot_s"] = *Tpot();
    return json;
  }
};

LatencyRow MeasureLength(Engine* engine, Profiler* profiler, PromptSource* source,
                         const RequestFlags& flags, int64_t input_len, StatusLine* status) {
  LatencyRow row{input_len, {}, {}, {}};
  std::vector<Ids> prompt(1);
  for (int64_t i = 0; i < flags.num_prompts; ++i) {
    status->Show(fmt::format("{} tokens, prompt {} of {}", input_len, i + 1, flags.num_prompts));
    prompt[0] = source->Next(input_len);
    const Timing timing = RunBatch(engine, profiler, prompt, flags.output_len).timing;
    row.ttft_s.push_back(timing.ttft_s);
    if (timing.tpot_s) row.tpot_s.push_back(*timing.tpot_s);
  }
  row.repeated = RunBatch(engine, profiler, prompt, flags.output_len).timing;
  return row;
}

void Finish(const RequestFlags& flags, const Profiler& profiler, const Engine& engine, Output* out,
            ordered_json json) {
  json["speculative"] = SpeculativeJson(engine.stats());
  out->Write(SpeculativeLine(engine.stats()));
  out->Write(profiler.Report());
  out->Flush();
  profiler.WriteTrace();
  WriteJson(*flags.bench, json);
}

void RunLatency(const RequestFlags& flags, Comm* world) {
  EngineOptions options = BenchEngine(*flags.bench);
  const std::vector<int64_t> lens =
      LengthsThatFit(*flags.bench, options, "--input-lens", flags.input_lens, flags.output_len);
  const Clock::time_point start = Clock::now();
  if (options.max_model_len == 0) options.max_model_len = std::ranges::max(lens) + flags.output_len;
  const std::unique_ptr<Executor> executor = LoadModel(options, world);
  PromptSource source(flags, *executor);
  const double load_s = Seconds(start);
  CatchInterrupts();
  Engine engine(executor.get());
  Profiler profiler(executor.get(), flags.profile);
  StatusLine status;
  status.Show("first prompt");
  const Timing cold =
      RunBatch(&engine, &profiler, {source.Next(lens.front())}, flags.output_len).timing;
  std::vector<LatencyRow> rows;
  for (int64_t len : lens)
    rows.push_back(MeasureLength(&engine, &profiler, &source, flags, len, &status));
  status.Clear();

  Output out;
  out.Write(fmt::format(
      "loaded in {:.2f} s; cold, the first prompt after that, {} tokens: TTFT {:.2f} ms, TPOT {} "
      "ms\n\n  input  output  prompts    TTFT ms   TTFT max    TPOT ms   prompt/s  again TTFT "
      "again "
      "TPOT\n",
      load_s, lens.front(), cold.ttft_s * 1e3,
      cold.tpot_s ? fmt::format("{:.2f}", *cold.tpot_s * 1e3) : "-"));
  ordered_json json = MachineJson(*executor);
  json["load_s"] = load_s;
  json["cold"] = TimingJson(cold);
  json["cold"]["input_len"] = lens.front();
  json["rows"] = ordered_json::array();
  for (const LatencyRow& row : rows) {
    out.Write(row.Line(flags.output_len));
    json["rows"].push_back(row.Json(flags.output_len));
  }
  Finish(flags, profiler, engine, &out, std::move(json));
}

void RunThroughput(const RequestFlags& flags, Comm* world) {
  const std::vector<int64_t> sizes = ParseCounts("--batch-sizes", flags.batch_sizes);
  EngineOptions options = BenchEngine(*flags.bench);
  const int64_t input_len = LengthsThatFit(*flags.bench, options, "--input-len",
                                           fmt::format("{}", flags.input_len), flags.output_len)
                                .front();
  options.max_num_seqs = std::ranges::max(sizes);
  options.max_num_batched_tokens = std::max(options.max_num_batched_tokens, options.max_num_seqs);
  if (options.max_model_len == 0) options.max_model_len = input_len + flags.output_len;
  const std::unique_ptr<Executor> executor = LoadModel(options, world);
  PromptSource source(flags, *executor);
  CatchInterrupts();
  Engine engine(executor.get());
  Profiler profiler(executor.get(), flags.profile);
  StatusLine status;
  RunBatch(&engine, &profiler, {source.Next(input_len)}, flags.output_len);  // cold

  Output out;
  out.Write("  batch   input  output    seconds  output/s     all/s    TTFT ms    TPOT ms\n");
  ordered_json json = MachineJson(*executor);
  json["rows"] = ordered_json::array();
  for (int64_t size : sizes) {
    status.Show(fmt::format("batch of {}", size));
    std::vector<Ids> prompts;
    for (int64_t i = 0; i < size; ++i) prompts.push_back(source.Next(input_len));
    const Batch batch = RunBatch(&engine, &profiler, prompts, flags.output_len);
    const double output_rate = static_cast<double>(batch.timing.output_tokens) / batch.seconds;
    const double rate =
        output_rate + static_cast<double>(batch.timing.prompt_tokens) / batch.seconds;
    status.Clear();
    out.Write(fmt::format("{:>7} {:>7} {:>7} {:>10.3f} {:>9.2f} {:>9.2f} {} {}\n", size, input_len,
                          flags.output_len, batch.seconds, output_rate, rate,
                          Ms(batch.timing.ttft_s), Ms(batch.timing.tpot_s)));
    out.Flush();
    ordered_json row = {{"batch_size", size},
                        {"input_len", input_len},
                        {"output_len", flags.output_len},
                        {"seconds", batch.seconds},
                        {"output_tokens_per_s", output_rate},
                        {"tokens_per_s", rate}};
    row.update(TimingJson(batch.timing));
    json["rows"].push_back(std::move(row));
  }
  Finish(flags, profiler, engine, &out, std::move(json));
}

std::shared_ptr<RequestFlags> AddRequestFlags(CLI::App* command) {
  auto flags = std::make_shared<RequestFlags>();
  flags->bench = AddBenchFlags(command);
  command->add_option("--output-len", flags->output_len, "Tokens of each answer")
      ->check(CheckInteger)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--dataset", flags->dataset,
                      "Cut prompts from this text; by default they are random ids");
  AddProfileFlags(command, &flags->profile);
  return flags;
}

}  // namespace

void AddBenchLatency(CLI::App& bench, Comm* world) {
  CLI::App* command =
      bench.add_subcommand("latency", "Time to first token and per output token, by prompt length");
  const std::shared_ptr<RequestFlags> flags = AddRequestFlags(command);
  flags->input_lens = "512,1024,2048,8192";
  command->add_option("--input-lens", flags->input_lens, "Prompt lengths in tokens")
      ->capture_default_str();
  command->add_option("--num-prompts", flags->num_prompts, "Prompts of each length")
      ->check(CheckInteger)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->callback([flags, world] { RunLatency(*flags, world); });
}

void AddBenchThroughput(CLI::App& bench, Comm* world) {
  CLI::App* command =
      bench.add_subcommand("throughput", "Tokens per second of several sequences at once");
  const std::shared_ptr<RequestFlags> flags = AddRequestFlags(command);
  flags->batch_sizes = "1,2,4,8";
  command->add_option("--batch-sizes", flags->batch_sizes, "Sequences computed together")
      ->capture_default_str();
  command->add_option("--input-len", flags->input_len, "Prompt length in tokens")
      ->check(CheckInteger)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->callback([flags, world] { RunThroughput(*flags, world); });
}

}  // namespace deepinfer
