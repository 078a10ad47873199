// bench step: single steps of given row counts at given context lengths. Caches are planted, not
// computed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "bench/limits.h"
#include "cli/bench.h"
#include "cli/bench_flags.h"
#include "cli/output.h"
#include "cli/profile_report.h"
#include "cli/terminal.h"
#include "config/synthetic.h"
#include "model/forward.h"
#include "model/step_bytes.h"
#include "obs/census.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

struct StepFlags {
  std::shared_ptr<BenchFlags> bench;
  std::string rows = "1,2,6,16,64,512", contexts = "1000,100000";
  double seconds = 2;
  ProfileFlags profile;
};

// Steps of one shape.
struct Cell {
  int64_t context, rows, steps = 0;
  double median_s = 0, best_s = 0;  // without profile
  CommStats exchanges = {};         // likewise, of all steps
  Census census = {};               // of the first few of the same steps, run once more

  // Bytes and flops a step has to do, in the mean.
  double bytes() const { return static_cast<double>(census.Total().bytes) / Steps(); }
  double flops() const { return census.Total().flops / Steps(); }
  // Of the time of all layers.
  double ShareOf(const std::string& prefix) const {
    const auto in_layers = [](const std::string&, int layer) { return layer >= 0; };
    const auto wanted = [&](const std::string& name, int layer) {
      return layer >= 0 && name.starts_with(prefix);
    };
    return census.Total(wanted).seconds / census.Total(in_layers).seconds;
  }
  double WaitShare() const { return census.Total().wait_seconds / census.Total().seconds; }

 private:
  double Steps() const { return static_cast<double>(census.steps()); }
};

// Up to so many rows verify a draft and want the logits of each; more are a prompt's.
constexpr int64_t kMostVerified = 16;
constexpr int64_t kFewestSteps = 3, kMostSteps = 50, kProfiledSteps = 5;

// Every step gets other random tokens: other experts, so that no cache remembers the last ones.
class StepRunner {
 public:
  StepRunner(Executor* executor, int64_t context, int64_t rows)
      : executor_(*executor), context_(context), rows_(rows), slot_(executor->kv().Open()) {
    executor_.kv().Reserve(slot_, context + rows);
    executor_.kv().SetLength(slot_, context);
  }
  ~StepRunner() { executor_.kv().Close(slot_); }
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Seconds of step number `n`.
  double Run(int64_t n) {
    const std::vector<TokenId> tokens =
        RandomIds(context_ + rows_, executor_.config(), static_cast<uint64_t>(n) * 1000003);
    const SeqRows seq{.slot = slot_,
                      .tokens = tokens,
                      .first = context_,
                      .n_logits = rows_ > kMostVerified ? 1 : rows_};
    const auto start = std::chrono::steady_clock::now();
    executor_.Step({&seq, 1});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  Executor& executor_;
  int64_t context_, rows_;
  SeqSlot slot_;
};

Cell Measure(Executor* executor, int64_t context, int64_t rows, double seconds, Trace* trace) {
  Cell cell{.context = context, .rows = rows};
  StepRunner runner(executor, context, rows);
  runner.Run(-1);  // first touch of temporaries
  executor->TakeExchanges();
  std::vector<double> times;
  for (double sum = 0; cell.steps < kFewestSteps || (sum < seconds && cell.steps < kMostSteps);) {
    times.push_back(runner.Run(cell.steps++));
    sum += times.back();
  }
  cell.exchanges = executor->TakeExchanges();
  cell.median_s = Median(times);
  cell.best_s = *std::ranges::min_element(times);
  StepProfile profile;
  executor->SetProfile(&profile);
  for (int64_t n = 0; n < std::min(cell.steps, kProfiledSteps); ++n) {
    runner.Run(n);
    cell.census.Add(profile);
    trace->Add(profile);
  }
  executor->SetProfile(nullptr);
  return cell;
}

// What the machine needs at least for a step: to read, or to compute.
struct Bound {
  double seconds;
  const char* name;

  Bound(const Cell& c, const MachineLimits& limits)
      : seconds(BoundSeconds(c.bytes(), c.flops(), limits)),
        name(BoundSeconds(c.bytes(), 0, limits) < seconds ? "compute" : "read") {}
};

ordered_json CellJson(const Cell& c, const MachineLimits& limits) {
  const Bound bound(c, limits);
  const auto seconds_a_step = [&](int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) * 1e-9 / static_cast<double>(c.steps);
  };
  return {{"context", c.context},
          {"rows", c.rows},
          {"steps", c.steps},
          {"step_s", c.median_s},
          {"best_s", c.best_s},
          {"bytes", c.bytes()},
          {"flops", c.flops()},
          {"bound", bound.name},
          {"bound_s", bound.seconds},
          {"share", bound.seconds / c.median_s},
          {"attention_share", c.ShareOf("attn.sparse")},
          {"selection_share", c.ShareOf("indexer.")},
          {"experts_share", c.ShareOf("moe.")},
          {"wait_share", c.WaitShare()},
          {"exchange_s", seconds_a_step(c.exchanges.nanoseconds)},
          {"exchange_wait_s", seconds_a_step(c.exchanges.wait_nanoseconds)}};
}

constexpr char kHeader[] =
    " context  rows    step ms    best ms    MB read    GB/s TFLOP/s    bound   share    attn  "
    "select     moe    wait\n";

std::string CellLine(const Cell& c, const MachineLimits& limits) {
  const Bound bound(c, limits);
  return fmt::format(
      "{:>8} {:>5} {:>10.3f} {:>10.3f} {:>10.1f} {:>7.2f} {:>7.3f} {:>8} {:>6.1f}% {:>6.1f}% "
      "{:>6.1f}% {:>6.1f}% {:>6.1f}%\n",
      c.context, c.rows, c.median_s * 1e3, c.best_s * 1e3, c.bytes() / 1e6,
      c.bytes() / c.median_s / 1e9, c.flops() / c.median_s / 1e12, bound.name,
      100 * bound.seconds / c.median_s, 100 * c.ShareOf("attn.sparse"), 100 * c.ShareOf("indexer."),
      100 * c.ShareOf("moe."), 100 * c.WaitShare());
}

std::string Kinds(const ModelConfig& config) {
  std::string text;
  for (int layer = 0; layer < config.num_hidden_layers; ++layer)
    text += (text.empty() ? "" : ", ") + LayerKind(config, layer);
  return text;
}

const Cell* Find(const std::vector<Cell>& cells, int64_t context, int64_t rows) {
  for (const Cell& c : cells) {
    if (c.context == context && c.rows == rows) return &c;
  }
  return nullptr;
}

// What the goals compare: more rows against their bytes, long context against short.
std::string Ratios(const std::vector<Cell>& cells) {
  std::string text;
  const auto [low, high] = std::ranges::minmax(cells, {}, &Cell::context);
  for (const Cell& c : cells) {
    const Cell* one = Find(cells, c.context, 1);
    if (one != nullptr && c.rows > 1 && c.rows <= kMostVerified) {
      const double time = c.median_s / one->median_s, bytes = c.bytes() / one->bytes();
      text +=
          fmt::format("{} rows / 1 row at context {}: time {:.2f}, bytes {:.2f}, ratio {:.2f}\n",
                      c.rows, c.context, time, bytes, time / bytes);
    }
    const Cell* near = Find(cells, low.context, c.rows);
    if (c.context == high.context && high.context > low.context && near != nullptr) {
      text += fmt::format("context {} / {} at {} rows: time {:.2f}\n", high.context, low.context,
                          c.rows, c.median_s / near->median_s);
    }
  }
  return text;
}

// What the whole model would do here if this machine held it: the bytes it must read, at the rate
// and share measured with the cut.
std::string Predictions(const std::vector<Cell>& cells, const MachineLimits& limits,
                        const std::string& numerics) {
  const ModelConfig whole = ModelConfig::Parse(kReleasedConfig, "released config");
  std::string text;
  for (const Cell& c : cells) {
    if (c.rows > kMostVerified) continue;
    const KvShape shape = MakeKvShape(whole, Numerics::Named(numerics), c.rows);
    const double bytes = StepBytes(whole, shape)(c.rows, c.context);
    const double share = c.bytes() / limits.read_bytes_per_s / c.median_s;
    text += fmt::format(
        "predicted for all {} layers and {} experts in memory, {} rows at context "
        "{}: {:.2f} GB, {:.0f} ms\n",
        whole.num_hidden_layers, whole.n_routed_experts, c.rows, c.context, bytes / 1e9,
        bytes / limits.read_bytes_per_s / share * 1e3);
  }
  return text;
}

void RunBenchStep(const StepFlags& flags, Comm* world) {
  const std::vector<int64_t> rows = ParseCounts("--rows", flags.rows);
  EngineOptions options = BenchEngine(*flags.bench);
  const std::vector<int64_t> contexts =
      LengthsThatFit(*flags.bench, options, "--context", flags.contexts, std::ranges::max(rows));
  options.speculative = "off";
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = *std::ranges::max_element(rows);
  options.max_model_len = *std::ranges::max_element(contexts) + options.max_num_batched_tokens;
  const std::unique_ptr<Executor> executor = LoadModel(options, world, true);
  const ModelConfig& config = executor->config();
  executor->PlantCaches(1);
  StatusLine status;
  const std::string& isa = executor->options().isa;
  const int threads = static_cast<int>(executor->options().threads);
  status.Show("measuring the limits of the machine");
  const MachineLimits limits = MeasureLimits(threads, isa);

  std::vector<Cell> cells;
  Trace trace;
  for (const int64_t context : contexts) {
    for (const int64_t n : rows) {
      status.Show(fmt::format("context {}, {} rows", context, n));
      cells.push_back(Measure(executor.get(), context, n, flags.seconds, &trace));
    }
  }
  status.Clear();

  Output out;
  out.Write(fmt::format(
      "{} layers ({}), {} experts, vocabulary {}\n{}, {} threads; limits: read {:.2f} GB/s, fma "
      "{:.3f} TFLOP/s, bf16 tiles {:.3f} TFLOP/s\n\n{}",
      config.num_hidden_layers, Kinds(config), config.n_routed_experts, config.vocab_size, isa,
      threads, limits.read_bytes_per_s / 1e9, limits.fma_flops / 1e12, limits.tile_flops / 1e12,
      kHeader));
  ordered_json list = ordered_json::array();
  for (const Cell& cell : cells) {
    out.Write(CellLine(cell, limits));
    list.push_back(CellJson(cell, limits));
  }
  out.Write("\n" + Ratios(cells));
  if (options.synthetic) out.Write(Predictions(cells, limits, executor->options().numerics));
  for (const Cell& cell : cells) {
    if (!flags.profile.profile) break;
    const std::string title = fmt::format("\n{} rows at context {}", cell.rows, cell.context);
    out.Write(CensusReport(cell.census, title, config, limits) +
              ExchangesLine(cell.exchanges, cell.steps));
  }
  out.Flush();
  if (!flags.profile.trace_file.empty())
    WriteFile("--trace", flags.profile.trace_file, trace.Json());
  WriteJson(*flags.bench, {{"isa", isa},
                           {"threads", threads},
                           {"layers", config.num_hidden_layers},
                           {"experts", config.n_routed_experts},
                           {"vocab", config.vocab_size},
                           {"read_bytes_per_s", limits.read_bytes_per_s},
                           {"fma_flops", limits.fma_flops},
                           {"tile_flops", limits.tile_flops},
                           {"steps", std::move(list)}});
}

}  // namespace

void AddBenchStep(CLI::App& bench, Comm* world) {
  CLI::App* command = bench.add_subcommand(
      "step", "Time of single steps by rows and context, against the bytes they must read");
  auto flags = std::make_shared<StepFlags>();
  flags->bench = AddBenchFlags(command);
  command->add_option("--rows", flags->rows, "Rows of one sequence in a step")
      ->capture_default_str();
  command->add_option("--context", flags->contexts, "Tokens in the caches (planted, not computed)")
      ->capture_default_str();
  command->add_option("--seconds", flags->seconds, "Time for each pair of the two")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  AddProfileFlags(command, &flags->profile);
  command->callback([flags, world] { RunBenchStep(*flags, world); });
}

}  // namespace deepinfer
