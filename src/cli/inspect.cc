#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/safetensors.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/scan.h"
#include "config/shape_table.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

struct Tally {
  int64_t tensors = 0, bytes = 0;
  void Add(int64_t n_bytes) { ++tensors, bytes += n_bytes; }
};

struct Inventory {
  std::array<Tally, kNumParts> parts;
  std::map<std::string, Tally, std::less<>> dtypes;
  Tally total;

  void Add(Part part, std::string_view dtype, int64_t bytes) {
    parts[static_cast<size_t>(part)].Add(bytes);
    dtypes[std::string(dtype)].Add(bytes);
    total.Add(bytes);
  }
};

// 1234567 -> "1,234,567"
std::string Grouped(int64_t n) {
  std::string digits = fmt::format("{}", n);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string Row(std::string_view name, const Tally& tally) {
  return fmt::format("{:<10}{:>10}{:>20}\n", name, Grouped(tally.tensors), Grouped(tally.bytes));
}

std::string Table(const Inventory& inventory) {
  std::string text = fmt::format("{:<10}{:>10}{:>20}\n", "part", "tensors", "bytes");
  for (int p = 0; p < kNumParts; ++p)
    text += Row(PartName(static_cast<Part>(p)), inventory.parts[static_cast<size_t>(p)]);
  text += fmt::format("\n{:<10}{:>10}{:>20}\n", "dtype", "tensors", "bytes");
  for (const auto& [dtype, tally] : inventory.dtypes) text += Row(dtype, tally);
  return text + "\n" + Row("total", inventory.total);
}

ordered_json TallyJson(const Tally& tally) {
  return {{"tensors", tally.tensors}, {"bytes", tally.bytes}};
}

ordered_json Summary(const Inventory& inventory) {
  ordered_json json = TallyJson(inventory.total);
  for (int p = 0; p < kNumParts; ++p) {
    json["parts"][std::string(PartName(static_cast<Part>(p)))] =
        TallyJson(inventory.parts[static_cast<size_t>(p)]);
  }
  for (const auto& [dtype, tally] : inventory.dtypes) json["dtypes"][dtype] = TallyJson(tally);
  return json;
}

// --expect: what a config implies, without any checkpoint.
void PrintExpected(const std::string& path, bool as_json) {
  const std::vector<TensorSpec> table = ShapeTable(ModelConfig::Load(path));
  Inventory inventory;
  for (const TensorSpec& t : table) inventory.Add(t.part, t.dtype, t.bytes());
  Output out;
  if (as_json) {
    ordered_json json = Summary(inventory);
    ordered_json& list = json["inventory"] = ordered_json::array();
    for (const TensorSpec& t : table) {
      list.push_back(
          {{"name", t.name}, {"dtype", t.dtype}, {"shape", t.dims()}, {"part", PartName(t.part)}});
    }
    out.Write(json.dump() + "\n");
  } else {
    out.Write(Table(inventory));
  }
  out.Flush();
}

// Reads everything; a progress line on a terminal.
std::vector<ScanFinding> Scan(const Checkpoint& checkpoint) {
  const bool is_terminal = isatty(2) != 0;
  int64_t shown = -1;
  const auto progress = [&](int64_t done) {
    const int64_t percent =
        100 * (done / 1024) / std::max<int64_t>(checkpoint.total_bytes() / 1024, 1);
    if (!is_terminal || percent == shown) return;
    shown = percent;
    fmt::print(stderr, "\rscan {:3} %", percent);
    std::fflush(stderr);
  };
  std::vector<ScanFinding> findings = ScanCheckpoint(checkpoint, progress);
  if (is_terminal) fmt::print(stderr, "\r{:10}\r", "");
  return findings;
}

// A checkpoint that opens has exactly the inventory its config implies, plus the tensors listed as
// unused.
Inventory StoredInventory(const OpenedModel& model) {
  Inventory inventory;
  for (const TensorSpec& spec : ShapeTable(model.config)) {
    const StoredTensor& t = *model.checkpoint.Find(spec.name);
    inventory.Add(spec.part, t.dtype, t.bytes);
  }
  return inventory;
}

void InspectModel(const std::string& name, bool scan, bool as_json) {
  const OpenedModel model = OpenModel(name);
  const Checkpoint& checkpoint = model.checkpoint;
  const Inventory inventory = StoredInventory(model);
  const std::vector<ScanFinding> findings = scan ? Scan(checkpoint) : std::vector<ScanFinding>();
  Output out;
  if (as_json) {
    ordered_json json = {{"directory", model.dir}, {"shards", checkpoint.shards()}};
    json.update(Summary(inventory));
    json["equals_config"] = true;
    json["unused"] = checkpoint.unused();
    if (scan) {
      ordered_json& list = json["not_finite"] = ordered_json::array();
      for (const ScanFinding& f : findings)
        list.push_back({{"name", f.tensor}, {"count", f.count}, {"first", f.first}});
    }
    out.Write(json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else {
    out.Write(Table(inventory));
    out.Write(fmt::format(
        "\n{} shards in {}: equal to the {} tensors and {} bytes that config.json implies\n",
        checkpoint.shards().size(), model.dir, Grouped(inventory.total.tensors),
        Grouped(inventory.total.bytes)));
    for (const std::string& tensor : checkpoint.unused())
      out.Write(fmt::format("unused {}\n", Printable(tensor)));
    for (const ScanFinding& f : findings) out.Write(f.Sentence() + "\n");
    if (scan && findings.empty())
      out.Write(fmt::format("all {} bytes read: every value is finite\n",
                            Grouped(checkpoint.total_bytes())));
  }
  out.Flush();
  if (!findings.empty()) {
    throw Error(Code::kCorrupt,
                fmt::format("{}: {} tensors hold values that are not finite, the first is {}",
                            model.dir, findings.size(), findings.front().tensor));
  }
}

}  // namespace

void AddInspect(CLI::App& app) {
  struct Flags {
    std::string expect;
    bool scan = false, json = false;
  };
  CLI::App* command = app.add_subcommand(
      "inspect", "Count the tensors of a checkpoint and check them against its config");
  auto flags = std::make_shared<Flags>();
  auto engine = std::make_shared<EngineOptions>();
  engine->ApplyEnvironment();
  CLI::Option* dir =
      command->add_option("directory,--model", engine->model,
                          "Model directory, or org/name in the local hub cache (DEEPINFER_MODEL)");
  CLI::Option* expect = command->add_option(
      "--expect", flags->expect, "Print what this config.json implies; needs no checkpoint");
  CLI::Option* scan = command->add_flag("--scan", flags->scan,
                                        "Read every byte and report values that are not finite");
  command->add_flag("--json", flags->json, "Print one JSON object");
  expect->excludes(dir)->excludes(scan);
  command->callback([flags, engine, expect] {
    if (expect->count() > 0) {
      PrintExpected(flags->expect, flags->json);
    } else {
      InspectModel(engine->model, flags->scan, flags->json);
    }
  });
}

}  // namespace deepinfer
