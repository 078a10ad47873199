// bench drafts: what draft tokens gain over plain decoding when their acceptance is planted, beside
// what the bytes of a step promise.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "cli/bench.h"
#include "cli/bench_flags.h"
#include "cli/draft_report.h"
#include "cli/output.h"
#include "cli/planted_blocks.h"
#include "cli/terminal.h"
#include "config/synthetic.h"
#include "engine/engine.h"
#include "model/forward.h"
#include "model/step_bytes.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

struct DraftFlags {
  std::shared_ptr<BenchFlags> bench;
  std::vector<double> taus = {1.3, 2, 2.75, 4.5, 5.5};
  int64_t input_len = 64;
  double seconds = 20;
  uint64_t seed = 1;
};

constexpr int64_t kMostTokens = 4000;  // of an answer
constexpr int64_t kTurn = 8;           // tokens of an answer before it is another's turn
constexpr int64_t kPlainTurn = 4;      // the same without drafts: its steps are all alike
constexpr int64_t kSettled = 4;        // turns that the policy may learn in

// One answer, in turns with others on the same executor.
class Lane {
 public:
  // Without `drafts`, plain.
  Lane(Executor* executor, PlantedAnswer* drafts, std::vector<TokenId> prompt)
      : engine_(executor, drafts != nullptr) {
    engine_.PlantDrafts(drafts);
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    request.max_tokens = kMostTokens;
    id_ = engine_.Submit(request);
    while (NextStep() == 0) continue;
  }
  ~Lane() { engine_.Cancel(id_); }  // frees its slot for the next one
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Goes on until at least `tokens` follow the first one. false: the answer is complete.
  bool RunTo(int64_t tokens) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t before = n_tokens_;
    while (n_tokens_ < tokens && !engine_.idle()) n_tokens_ += NextStep();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (n_tokens_ > before)
      turns_.push_back({static_cast<double>(n_tokens_ - before), time.count()});
    seconds_ += time.count();
    return !engine_.idle();
  }
  // What follows is measured.
  void Settle() { turns_.clear(); }

  // Tokens per second since Settle.
  double Rate() const {
    double tokens = 0, seconds = 0;
    for (const Turn& turn : turns_) {
      tokens += turn.tokens;
      seconds += turn.seconds;
    }
    return tokens / seconds;
  }
  // The same from the start.
  double RateFromStart() const { return static_cast<double>(n_tokens_) / seconds_; }
  // Standard deviation of the turns' rates, in parts of their mean.
  double Spread() const {
    double sum = 0, squares = 0;
    for (const Turn& turn : turns_) {
      sum += turn.tokens / turn.seconds;
      squares += std::pow(turn.tokens / turn.seconds, 2);
    }
    const auto n = static_cast<double>(turns_.size());
    return std::sqrt(std::max(squares / n - std::pow(sum / n, 2), 0.0)) / (sum / n);
  }
  double seconds() const { return seconds_; }
  Engine::Stats stats() const { return engine_.stats(); }

 private:
  struct Turn {
    double tokens, seconds;
  };
  int64_t NextStep() {
    int64_t tokens = 0;
    for (const Delta& delta : engine_.Step()) {
      if (delta.finish == FinishReason::kError) throw Error(Code::kCorrupt, delta.error);
      tokens += std::ssize(delta.token_ids);
    }
    if (TakeInterrupt()) throw CLI::RuntimeError(kInterruptedStatus);
    return tokens;
  }

  Engine engine_;
  RequestId id_ = 0;
  int64_t n_tokens_ = 0;  // behind the first
  double seconds_ = 0;
  std::vector<Turn> turns_;
};

// Gain over plain decoding that the bytes promise, of the best fixed depth.
struct Promise {
  double gain = 1;
  int64_t depth = 0;  // 0: no drafts
};
// tokens(depth): that a step brings.
template <typename TokensOf>
Promise BestGain(const StepBytes& bytes, int64_t block, int64_t context, double overlap,
                 const TokensOf& tokens) {
  const auto step = [&](int64_t rows) {
    return overlap < 0 ? bytes(rows, context) : bytes.WithOverlap(rows, context, overlap);
  };
  Promise best;
  for (int64_t depth = 1; depth <= block; ++depth) {
    const double time = (step(1 + depth) + bytes.Draft(1) + bytes.DraftRows()) / step(1);
    if (tokens(depth) / time > best.gain) best = {tokens(depth) / time, depth};
  }
  return best;
}

struct Cell {
  double tau;
  Promise promise = {}, released = {};
  double gain = 0, gain_from_start = 0, spread = 0;
  int64_t fixed_depth = 0;  // that the bytes promise most of; 0: no drafts
  double fixed_gain = 1;
  Engine::Stats plain = {}, drafted = {};

  double ratio() const { return gain / promise.gain; }
  double TokensPerStep() const {
    const Engine::Stats::Steps &a = drafted.plain, &b = drafted.drafted;
    return static_cast<double>(a.tokens + b.tokens) / static_cast<double>(a.n + b.n);
  }
  // Draft included.
  double StepSeconds() const {
    const Engine::Stats::Steps &a = drafted.plain, &b = drafted.drafted;
    return (a.seconds + b.seconds + drafted.drafts_s) / static_cast<double>(a.n + b.n);
  }
  double PlainSeconds() const { return plain.plain.StepSeconds().value_or(0); }
};

// The answers that are compared: plain, with as many drafts as the policy chooses, and with a
// fixed number of them unless that is 0.
struct Lanes {
  Lanes(Executor* executor, PlantedBlocks* blocks, int64_t depth,
        const std::vector<TokenId>& prompt)
      : chosen(blocks, std::nullopt),
        fixed(blocks, depth),
        plain_lane(executor, nullptr, prompt),
        chosen_lane(executor, &chosen, prompt) {
    if (depth > 0) fixed_lane.emplace(executor, &fixed, prompt);
  }

  // false: an answer is complete.
  bool Turn(int64_t n) {
    return plain_lane.RunTo(n * kPlainTurn) && chosen_lane.RunTo(n * kTurn) &&
           (!fixed_lane || fixed_lane->RunTo(n * kTurn));
  }
  void Settle() {
    plain_lane.Settle();
    chosen_lane.Settle();
    if (fixed_lane) fixed_lane->Settle();
  }
  double seconds() const {
    return plain_lane.seconds() + chosen_lane.seconds() + (fixed_lane ? fixed_lane->seconds() : 0);
  }

  PlantedAnswer chosen, fixed;
  Lane plain_lane, chosen_lane;
  std::optional<Lane> fixed_lane;
};

Cell Measure(Executor* executor, const StepBytes& released, const DraftFlags& flags, double tau) {
  const int64_t block = executor->draft_tokens();
  const StepBytes bytes(executor->config(), executor->kv().shape());
  const auto best = [&](const StepBytes& of, const auto& tokens) {
    return BestGain(of, block, flags.input_len, executor->options().routing_overlap, tokens);
  };
  PlantedBlocks blocks(tau, block, flags.seed);
  const auto in_the_mean = [&](int64_t depth) { return blocks.Tokens(depth); };
  Cell cell{.tau = tau, .released = best(released, in_the_mean)};
  cell.fixed_depth = best(bytes, in_the_mean).depth;
  Lanes lanes(executor, &blocks, cell.fixed_depth,
              RandomIds(flags.input_len, executor->config(), flags.seed));
  int64_t n = 0;
  for (bool goes_on = true; goes_on && (n < 2 * kSettled || lanes.seconds() < flags.seconds);) {
    goes_on = lanes.Turn(++n);
    if (n == kSettled) lanes.Settle();
  }
  // Of the verdicts that lie where it was measured.
  const int64_t first = flags.input_len + 1;
  cell.promise = best(bytes, [&](int64_t depth) {
    return blocks.TokensBetween(first + kSettled * kTurn, first + n * kTurn, depth);
  });
  cell.gain = lanes.chosen_lane.Rate() / lanes.plain_lane.Rate();
  cell.gain_from_start = lanes.chosen_lane.RateFromStart() / lanes.plain_lane.RateFromStart();
  if (lanes.fixed_lane) cell.fixed_gain = lanes.fixed_lane->Rate() / lanes.plain_lane.Rate();
  cell.spread = lanes.plain_lane.Spread();
  cell.plain = lanes.plain_lane.stats();
  cell.drafted = lanes.chosen_lane.stats();
  return cell;
}

// Parts of the bytes of a plain step: head, draft, and what leaves rows for the draft stages.
ordered_json SharesJson(const ModelConfig& c, const StepBytes& bytes, int64_t context) {
  const double step = bytes(1, context);
  return {{"step_bytes", step},
          {"head", static_cast<double>(c.vocab_size * c.hidden_size * 2) / step},
          {"draft", bytes.Draft(1) / step},
          {"draft_rows", bytes.DraftRows() / step}};
}

std::string SharesLine(const char* name, const ordered_json& s) {
  return fmt::format(
      "{}: plain step {:.2f} GB; of that head {:.1f} %, a draft {:.1f} %, rows for the stages "
      "{:.1f} %\n",
      name, s["step_bytes"].get<double>() / 1e9, 100 * s["head"].get<double>(),
      100 * s["draft"].get<double>(), 100 * s["draft_rows"].get<double>());
}

constexpr char kHeader[] =
    "  tau   plain ms  spread   with ms   draft ms  tokens/step   gain  from start   fixed depth  "
    "promised depth  ratio   released\n";

std::string Line(const Cell& c) {
  const auto n_drafts = static_cast<double>(std::max<int64_t>(c.drafted.drafted.n, 1));
  return fmt::format(
      "{:>5.2f} {:>10.2f} {:>6.1f}% {:>9.2f} {:>10.2f} {:>12.2f} {:>6.2f} {:>11.2f} {:>7.2f} {:>5} "
      "{:>9.2f} {:>5} {:>6.2f} {:>7.2f}({})\n",
      c.tau, c.PlainSeconds() * 1e3, 100 * c.spread, c.StepSeconds() * 1e3,
      c.drafted.drafts_s / n_drafts * 1e3, c.TokensPerStep(), c.gain, c.gain_from_start,
      c.fixed_gain, c.fixed_depth, c.promise.gain, c.promise.depth, c.ratio(), c.released.gain,
      c.released.depth);
}

ordered_json CellJson(const Cell& c) {
  return {{"tau", c.tau},
          {"plain_step_s", c.PlainSeconds()},
          {"plain_spread", c.spread},
          {"step_s", c.StepSeconds()},
          {"tokens_per_step", c.TokensPerStep()},
          {"gain", c.gain},
          {"gain_from_start", c.gain_from_start},
          {"fixed_gain", c.fixed_gain},
          {"fixed_depth", c.fixed_depth},
          {"promised", c.promise.gain},
          {"promised_depth", c.promise.depth},
          {"ratio", c.ratio()},
          {"released_promised", c.released.gain},
          {"released_depth", c.released.depth},
          {"speculative", SpeculativeJson(c.drafted)}};
}

void RunBenchDrafts(const DraftFlags& flags, Comm* world) {
  EngineOptions options = BenchEngine(*flags.bench);
  options.max_num_seqs = 3;      // the lanes
  options.prefix_cache_mib = 0;  // every cell computes its prompt
  options.max_model_len = flags.input_len + kMostTokens;
  const std::unique_ptr<Executor> executor = LoadModel(options, world);
  const int64_t block = executor->draft_tokens();
  if (block == 0) throw Error(Code::kInvalid, "expected a model with draft stages, found none");
  for (const double tau : flags.taus) {
    if (tau > 1 && tau < static_cast<double>(block + 1)) continue;
    throw Error(Code::kInvalid, fmt::format("--tau: expected numbers between 1 and {} (tokens of a "
                                            "verification), found {}",
                                            block + 1, tau));
  }
  CatchInterrupts();
  const ModelConfig whole = ModelConfig::Parse(kReleasedConfig, "released config");
  const KvShape whole_shape =
      MakeKvShape(whole, Numerics::Named(executor->options().numerics), block + 1);
  const StepBytes whole_bytes(whole, whole_shape);
  const ordered_json shares = SharesJson(
      executor->config(), StepBytes(executor->config(), executor->kv().shape()), flags.input_len);
  const ordered_json released = SharesJson(whole, whole_bytes, flags.input_len);
  Output out;
  out.Write(SharesLine("this model", shares) + SharesLine("released", released) + "\n" + kHeader);
  ordered_json report = {{"isa", executor->options().isa},
                         {"threads", executor->options().threads},
                         {"layers", executor->config().num_hidden_layers},
                         {"experts", executor->config().n_routed_experts},
                         {"vocab", executor->config().vocab_size},
                         {"overlap", options.routing_overlap},
                         {"shares", shares},
                         {"released_shares", released},
                         {"cells", ordered_json::array()}};
  StatusLine status;
  for (const double tau : flags.taus) {
    status.Show(fmt::format("tau {}", tau));
    const Cell cell = Measure(executor.get(), whole_bytes, flags, tau);
    status.Clear();
    out.Write(Line(cell));
    out.Flush();
    report["cells"].push_back(CellJson(cell));
    WriteJson(*flags.bench, report);  // a run that is cut short keeps what it has
  }
}

}  // namespace

void AddBenchDrafts(CLI::App& bench, Comm* world) {
  CLI::App* command = bench.add_subcommand(
      "drafts", "Gain of draft tokens at planted acceptance, against what the bytes promise");
  auto flags = std::make_shared<DraftFlags>();
  flags->bench = AddBenchFlags(command);
  command->add_option("--tau", flags->taus, "Tokens per verification of whole blocks")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--input-len", flags->input_len, "Prompt length in tokens")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--seconds", flags->seconds, "Time for each of them")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Of what is accepted")->capture_default_str();
  command->callback([flags, world] { RunBenchDrafts(*flags, world); });
}

}  // namespace deepinfer
