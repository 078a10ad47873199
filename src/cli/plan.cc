// What a layout costs a rank: bytes of weights, and what is exchanged.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "checkpoint/model_dir.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "config/layout.h"
#include "config/synthetic.h"
#include "engine/dry_plan.h"
#include "planner/rank_memory.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

struct PlanFlags {
  LayoutOptions layout;
  int64_t rows = 1;
  std::string config, synthetic;
  bool json = false;
};

// Calls of one kind: exchanges of equal name and bytes.
struct Calls {
  Exchange exchange;
  int64_t count;
};

std::vector<Calls> Census(const std::vector<Exchange>& exchanges) {
  std::vector<Calls> census;
  for (const Exchange& e : exchanges) {
    const auto same = std::find_if(census.begin(), census.end(), [&](const Calls& c) {
      return std::string_view(c.exchange.name) == e.name && c.exchange.bytes == e.bytes;
    });
    if (same == census.end())
      census.push_back({e, 1});
    else
      ++same->count;
  }
  return census;
}

struct RankPlan {
  std::vector<MemoryPart> memory;  // of rank 0
  int64_t host_bytes;
  std::vector<Calls> step, draft = {};
};

int64_t Total(const std::vector<MemoryPart>& parts) {
  int64_t bytes = 0;
  for (const MemoryPart& p : parts) bytes += p.bytes;
  return bytes;
}

std::string Gib(int64_t bytes) {
  return fmt::format("{:.3f}", static_cast<double>(bytes) / (int64_t{1} << 30));
}

// A line for every operation and number of ranks.
std::string Totals(const std::vector<Calls>& census) {
  std::vector<std::pair<int, std::string_view>> kinds;
  std::string text;
  for (const Calls& c : census) {
    const std::pair<int, std::string_view> kind{c.exchange.ranks, c.exchange.op};
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    kinds.push_back(kind);
    int64_t calls = 0;
    for (const Calls& other : census) {
      if (other.exchange.ranks == kind.first && other.exchange.op == kind.second)
        calls += other.count;
    }
    text += fmt::format("{:<24}{:>8}{:>8}{:>8}\n", "in all", kind.second, kind.first, calls);
  }
  return text;
}

std::string CallsText(const char* title, const std::vector<Calls>& census) {
  std::string text =
      fmt::format("\n{:<24}{:>8}{:>8}{:>8}{:>16}\n", title, "op", "ranks", "calls", "bytes a call");
  for (const Calls& c : census)
    text += fmt::format("{:<24}{:>8}{:>8}{:>8}{:>16}\n", c.exchange.name, c.exchange.op,
                        c.exchange.ranks, c.count, c.exchange.bytes);
  return text + Totals(census);
}

std::string Text(const RankPlan& plan) {
  std::string text = fmt::format("{:<24}{:>12}\n", "weights of rank 0", "GiB");
  for (const MemoryPart& p : plan.memory)
    text += fmt::format("{:<24}{:>12}\n", p.name, Gib(p.bytes));
  text += fmt::format("{:<24}{:>12}\n", "total", Gib(Total(plan.memory)));
  text += fmt::format("{:<24}{:>12}\n", "shared on a host", Gib(plan.host_bytes));
  if (!plan.step.empty()) text += CallsText("exchanges of a step", plan.step);
  if (!plan.draft.empty()) text += CallsText("exchanges of a draft", plan.draft);
  return text;
}

ordered_json CallsJson(const std::vector<Calls>& census) {
  ordered_json json = ordered_json::array();
  for (const Calls& c : census) {
    json.push_back({{"name", c.exchange.name},
                    {"op", c.exchange.op},
                    {"ranks", c.exchange.ranks},
                    {"calls", c.count},
                    {"bytes", c.exchange.bytes}});
  }
  return json;
}

ordered_json Json(const RankPlan& plan) {
  ordered_json memory = ordered_json::object();
  for (const MemoryPart& p : plan.memory) memory[p.name] = p.bytes;
  return {{"rank_bytes", memory},
          {"rank_total", Total(plan.memory)},
          {"host_bytes", plan.host_bytes},
          {"step", CallsJson(plan.step)},
          {"draft", CallsJson(plan.draft)}};
}

ModelConfig ConfigOf(const PlanFlags& flags, const std::string& model, const CLI::App& command) {
  if (command.count("--synthetic") == 0) {
    return ModelConfig::Load(flags.config.empty()
                                 ? ResolveModelDir(model, HubCacheDir()) + "/config.json"
                                 : flags.config);
  }
  for (const char* other : {"--config", "--model"}) {
    if (command.count(other) > 0) {
      throw Error(Code::kInvalid,
                  fmt::format("--synthetic: expected no {} with it, found one", other));
    }
  }
  return SyntheticConfig(SyntheticModel::Parse(flags.synthetic));
}

void RunPlan(const PlanFlags& flags, const ModelConfig& config) {
  if (flags.rows < 1 || flags.rows > 65536)
    throw Error(Code::kInvalid,
                fmt::format("--rows: expected an integer from 1 to 65536, found {}", flags.rows));
  const Layout layout(config, flags.layout);
  RankPlan plan{RankMemory(config, layout, 0),
                HostMemory(config, layout),
                Census(PlanExchanges(config, layout, flags.rows)),
                {}};
  if (config.num_nextn_predict_layers > 0)
    plan.draft = Census(PlanDraftExchanges(config, layout, 1));
  Output out;
  out.Write(flags.json ? Json(plan).dump() + "\n" : Text(plan));
  out.Flush();
}

}  // namespace

void AddPlan(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("plan", "Memory of a rank and what ranks exchange, for a layout");
  auto flags = std::make_shared<PlanFlags>();
  const std::shared_ptr<EngineOptions> engine = AddModelFlag(command);
  command->add_option("--config", flags->config, "A config.json instead of a model");
  command->add_option("--synthetic", flags->synthetic, "A model as bench makes it, see there")
      ->expected(0, 1);
  command
      ->add_option(
          "--layout", flags->layout.layout,
          "ep (experts), tp (heads too), tp8r (heads within 8 ranks) or dp (a batch a rank)")
      ->capture_default_str();
  command
      ->add_option("--cp", flags->layout.batch_ranks, "Ranks that run one batch together; 0: all")
      ->check(CheckInteger)
      ->capture_default_str();
  command->add_option("--ep,--ranks", flags->layout.ranks, "Ranks, over which experts are spread")
      ->check(CheckInteger)
      ->capture_default_str();
  command
      ->add_option("--reduce", flags->layout.reduce,
                   "exact (the bits of one rank) or fast (partial sums, added in rank order)")
      ->capture_default_str();
  command
      ->add_option("--engram", flags->layout.engram,
                   "Engram tables: host, rows-fp8 or rows-bf16 (cut over ranks)")
      ->capture_default_str();
  command->add_option("--rows", flags->rows, "Tokens of the step, each with logits")
      ->check(CheckInteger)
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback(
      [flags, engine, command] { RunPlan(*flags, ConfigOf(*flags, engine->model, *command)); });
}

}  // namespace deepinfer
