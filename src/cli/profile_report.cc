#include "cli/profile_report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/output.h"
#include "config/synthetic.h"

namespace deepinfer {
namespace {

std::string Line(const CensusRow& row, const CensusRow& total, int64_t steps,
                 const MachineLimits& limits) {
  const auto n = static_cast<double>(steps);
  const double bound = BoundSeconds(static_cast<double>(row.bytes), row.flops, limits);
  return fmt::format("{:<32}{:>8.0f}{:>11.3f}{:>7.1f}%{:>10.2f}{:>8.2f}{:>7.1f}%{:>7.1f}%\n",
                     row.name, static_cast<double>(row.calls) / n, row.seconds / n * 1e3,
                     100 * row.seconds / total.seconds, static_cast<double>(row.bytes) / n / 1e6,
                     static_cast<double>(row.bytes) / row.seconds / 1e9, 100 * bound / row.seconds,
                     100 * row.wait_seconds / row.seconds);
}

std::string Table(std::vector<CensusRow> rows, const char* first, const Census& census,
                  const MachineLimits& limits) {
  const CensusRow total = census.Total();
  std::ranges::stable_sort(rows, std::greater<>(), &CensusRow::seconds);
  std::string text = fmt::format("{:<32}{:>8}{:>11}{:>8}{:>10}{:>8}{:>8}{:>8}\n", first, "calls",
                                 "ms", "time", "MB", "GB/s", "limit", "wait");
  for (const CensusRow& row : rows) text += Line(row, total, census.steps(), limits);
  return text;
}

}  // namespace

std::string ExchangesLine(const CommStats& stats, int64_t steps) {
  if (stats.calls == 0) return "";
  const auto n = static_cast<double>(steps);
  return fmt::format(
      "exchanges: {:.1f} calls, {:.3f} MB, {:.3f} ms of which {:.3f} waiting in each of {} steps\n",
      static_cast<double>(stats.calls) / n, static_cast<double>(stats.bytes) / n / 1e6,
      static_cast<double>(stats.nanoseconds) / n / 1e6,
      static_cast<double>(stats.wait_nanoseconds) / n / 1e6, steps);
}

void AddProfileFlags(CLI::App* command, ProfileFlags* flags) {
  command->add_flag("--profile", flags->profile,
                    "Print where the time of steps went, by phase and kind of layer");
  command->add_option("--trace", flags->trace_file,
                      "Write the newest steps to this file as a Chrome trace");
}

double BoundSeconds(double bytes, double flops, const MachineLimits& limits) {
  const double peak = limits.tile_flops > 0 ? limits.tile_flops : limits.fma_flops;
  return std::max(bytes / limits.read_bytes_per_s, flops / peak);
}

Profiler::Profiler(Executor* executor, const ProfileFlags& flags)
    : executor_(*executor), flags_(flags) {
  if (flags_.profile || !flags_.trace_file.empty()) executor_.SetProfile(&step_, &draft_step_);
  executor_.TakeExchanges();  // of loading
}

Profiler::~Profiler() { executor_.SetProfile(nullptr); }

void Profiler::AddStep() {
  if (step_.empty()) return;
  exchanges_ += executor_.TakeExchanges();
  ++n_steps_;
  if (!draft_step_.empty()) draft_.Add(draft_step_);
  (step_.is_decode() ? decode_ : prompt_).Add(step_);
  trace_.Add(step_);
  if (!draft_step_.empty()) trace_.Add(draft_step_);
  step_.Clear();
  draft_step_.Clear();
}

std::string Profiler::Report() const {
  if (!flags_.profile) return "";
  const EngineOptions& options = executor_.options();
  const MachineLimits limits = MeasureLimits(static_cast<int>(options.threads), options.isa);
  return CensusReport(prompt_, "prompt", executor_.config(), limits) +
         CensusReport(decode_, "decode", executor_.config(), limits) +
         (draft_.steps() > 0 ? CensusReport(draft_, "draft", executor_.config(), limits) : "") +
         ExchangesLine(exchanges_, n_steps_);
}

void Profiler::WriteTrace() const {
  if (!flags_.trace_file.empty()) WriteFile("--trace", flags_.trace_file, trace_.Json());
}

std::string CensusReport(const Census& census, const std::string& title, const ModelConfig& config,
                         const MachineLimits& limits) {
  if (census.steps() == 0) return fmt::format("{}: no steps\n", title);
  const CensusRow total = census.Total();
  const auto steps = static_cast<double>(census.steps());
  const double bound = BoundSeconds(static_cast<double>(total.bytes), total.flops, limits);
  const auto by_phase = [](const std::string& phase, int) { return phase; };
  const auto by_kind = [&config](const std::string&, int layer) {
    return layer < 0 ? "outside layers" : LayerKind(config, layer);
  };
  return fmt::format(
             "{}: {} steps of {:.1f} rows, {:.3f} ms each; {:.1f} MB read, {:.3f} TFLOP; {:.1f} % "
             "of "
             "the limit (read {:.2f} GB/s, compute {:.3f} TFLOP/s); {:.1f} % waiting\n\n",
             title, census.steps(), static_cast<double>(census.rows()) / steps,
             total.seconds / steps * 1e3, static_cast<double>(total.bytes) / steps / 1e6,
             total.flops / steps / 1e12, 100 * bound / total.seconds, limits.read_bytes_per_s / 1e9,
             (limits.tile_flops > 0 ? limits.tile_flops : limits.fma_flops) / 1e12,
             100 * total.wait_seconds / total.seconds) +
         Table(census.By(by_phase), "phase", census, limits) + "\n" +
         Table(census.By(by_kind), "kind of layer", census, limits) + "\n";
}

}  // namespace deepinfer
