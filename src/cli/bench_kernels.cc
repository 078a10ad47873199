// bench kernels: every op beside the limits of this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/cpu/select.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/topology.h"
#include "bench/kernel_bench.h"
#include "bench/kernel_cases.h"
#include "bench/machine_rates.h"
#include "cli/bench.h"
#include "cli/output.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

constexpr int kMostRows = 4096, kMostThreads = 1024;

std::string Header() {
  return fmt::format("{:<15}{:<22}{:<8}{:>4}{:>6}{:>12}{:>8}{:>9}{:>9}{:>9}{:>9}\n", "op", "shape",
                     "isa", "thr", "rows", "us", "spread", "GB/s", "read", "TFLOP/s", "peak");
}

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string Row(const KernelResult& r) {
  std::string text = fmt::format("{:<15}{:<22}{:<8}{:>4}{:>6}{:>12.1f}{:>8}{:>9.2f}{:>9}", r.op,
                                 r.shape, r.isa, r.threads, r.rows, 1e6 * r.seconds,
                                 fmt::format("{:.2f}", r.median_seconds / r.seconds),
                                 1e-9 * r.bytes / r.seconds, Percent(r.ReadShare()));
  if (r.flops > 0)
    text += fmt::format("{:>9.3f}{:>9}", 1e-12 * r.flops / r.seconds, Percent(r.PeakShare()));
  return text + (r.slow_tiles ? "  slow phase of tiles\n" : "\n");
}

std::string LimitsRow(const KernelResult& r) {
  const MachineLimits& l = r.limits;
  std::string text =
      fmt::format("limits {}, {} threads: read {:.2f} GB/s{}, fma {:.3f} TFLOP/s", r.isa, r.threads,
                  1e-9 * l.read_bytes_per_s, r.has_weights ? "" : " (caches)", 1e-12 * l.fma_flops);
  if (l.int8_ops > 0) text += fmt::format(", int8 {:.3f} TOP/s", 1e-12 * l.int8_ops);
  if (l.tile_flops > 0) text += fmt::format(", bf16 tiles {:.3f} TFLOP/s", 1e-12 * l.tile_flops);
  return text + "\n";
}

ordered_json Json(const KernelResult& r) {
  ordered_json json = {{"op", r.op},
                       {"shape", r.shape},
                       {"isa", r.isa},
                       {"threads", r.threads},
                       {"rows", r.rows},
                       {"samples", r.samples},
                       {"seconds", r.seconds},
                       {"median_seconds", r.median_seconds},
                       {"bytes", r.bytes},
                       {"read_bytes_per_s", r.limits.read_bytes_per_s},
                       {"read_share", r.ReadShare()},
                       {"from_memory", r.has_weights}};
  if (r.flops > 0) {
    json["flops"] = r.flops;
    json["peak_share"] = r.PeakShare();
  }
  json["fma_flops"] = r.limits.fma_flops;
  if (r.limits.int8_ops > 0) json["int8_ops"] = r.limits.int8_ops;
  if (r.limits.tile_flops > 0) json["tile_flops"] = r.limits.tile_flops;
  json["slow_tiles"] = r.slow_tiles;
  return json;
}

void Require(bool fine, const char* option, const std::string& expected) {
  if (!fine) throw Error(Code::kInvalid, fmt::format("{}: expected {}", option, expected));
}

void Check(const KernelBenchOptions& o) {
  const auto inside = [](const std::vector<int>& list, int most) {
    return std::all_of(list.begin(), list.end(), [&](int n) { return n >= 1 && n <= most; });
  };
  Require(inside(o.rows, kMostRows), "--rows", fmt::format("numbers from 1 to {}", kMostRows));
  Require(inside(o.threads, kMostThreads), "--threads",
          fmt::format("numbers from 1 to {}", kMostThreads));
  Require(o.seconds >= 0 && o.seconds <= 3600, "--seconds", "0 to 3600");
}

void WriteJson(const std::string& path, const ordered_json& json) {
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  if (!file.flush()) throw Error(Code::kIo, path + ": expected a file that can be written");
}

void Run(const KernelBenchOptions& options, const std::string& json_path) {
  ordered_json lines = ordered_json::array();
  Output out;
  std::string group;  // a line of limits whenever op, level or threads change
  RunKernelBench(options, [&](const KernelResult& r) {
    lines.push_back(Json(r));
    const std::string own = fmt::format("{} {} {}", r.op, r.isa, r.threads);
    if (own != group) out.Write(LimitsRow(r) + Header());
    group = own;
    out.Write(Row(r));
    out.Flush();
  });
  if (!json_path.empty()) WriteJson(json_path, {{"results", lines}});
}

// "model name" of /proc/cpuinfo.
std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

// The machine file of the cost model. Keys of what was not measured are left out.
void EmitMachine(const KernelBenchOptions& o, const std::string& path) {
  const MachineRates r = MeasureMachineRates(o.isas.front(), o.threads.front(), o.seconds);
  const int64_t memory = TotalMemoryBytes();
  const ordered_json machine = {
      {"name", fmt::format("{}, {} threads, {}", CpuName(), r.threads, r.isa)},
      {"source",
       fmt::format("deepinfer bench kernels --emit-machine: mem_bw, the read loop; decode_fp4 and "
                   "decode_fp8, gate_up and wq_b at one row from memory; flops_bf16, gate_up at {} "
                   "rows, {:.0f} % of the {:.3g} FLOP/s of the peak loop; memory, MemTotal. Not "
                   "measured: collectives, overlap, executor.",
                   kManyRows, 100 * r.bf16_flops / r.peak_flops, r.peak_flops)},
      {"measured", {{"memory", true}, {"rates", true}, {"coll", false}, {"executor", false}}},
      {"ranks", 1},
      {"ranks_per_host", 1},
      {"mem_per_rank", memory},
      {"host_mem", memory},
      {"unified", true},
      {"mem_bw", r.read_bytes_per_s},
      {"flops_bf16", r.bf16_flops},
      {"decode_fp8", r.fp8_elements_per_s},
      {"decode_fp4", r.fp4_elements_per_s},
      {"rates_include_traffic", true},
      {"scratch_bf16", false}};
  WriteJson(path, machine);
}

}  // namespace

void AddBenchKernels(CLI::App& bench) {
  struct Flags {
    KernelBenchOptions options;
    std::string json, machine;
  };
  auto flags = std::make_shared<Flags>();
  KernelBenchOptions& o = flags->options;
  o.ops = KernelOp::Names();
  o.isas = {"auto"};
  o.rows = {1, 2, 6, 16, 128};
  o.threads = {DefaultThreads()};
  CLI::App* command = bench.add_subcommand(
      "kernels", "Kernels at the released shapes, as shares of this machine's limits");
  command->add_option("--op", o.ops, "Which of them")->delimiter(',');
  command->add_option("--isa", o.isas, "auto, generic, avx2, avx512 or amx")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--rows", o.rows, "Rows of activations")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--threads", o.threads, "Threads; by default one per physical core")
      ->delimiter(',');
  command->add_option("--seconds", o.seconds, "Time for each line")->capture_default_str();
  command->add_option("--json", flags->json, "Also write a JSON file");
  CLI::Option* machine = command->add_option(
      "--emit-machine", flags->machine,
      "Instead write a machine file for the cost model, from the first level and threads");
  machine->excludes("--op")->excludes("--rows")->excludes("--json");
  command->callback([flags] {
    Check(flags->options);
    if (flags->machine.empty()) {
      Run(flags->options, flags->json);
    } else {
      EmitMachine(flags->options, flags->machine);
    }
  });
}

}  // namespace deepinfer
