#include "planner/rank_memory.h"

#include <algorithm>
#include <string_view>

namespace deepinfer {

namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Read by single rows out of the mapped file: the ranks of a host share its pages.
bool IsOnHost(const TensorSpec& t, const Layout& layout) {
  return (Has(t.name, ".engram.embed.") && !layout.cuts_engram()) ||
         (Has(t.name, "markov_head.embed.") && !layout.adds_partial_sums());
}

// The part of the table that a tensor counts for.
const char* NameOfPart(const TensorSpec& t) {
  const std::string& name = t.name;
  if (Has(name, "ffn.experts.")) return t.part == Part::kMtp ? "draft experts" : "routed experts";
  if (Has(name, "ffn.shared_experts.")) return "shared experts";
  if (Has(name, "ffn.gate.")) return "routers";
  if (Has(name, ".engram.embed.")) return "Engram tables";
  if (Has(name, "engram.")) return "Engram projections";
  if (Has(name, ".hc_")) return "hyper-connections";
  if (Has(name, "compressor.") || Has(name, "indexer.wk.") || Has(name, "indexer.k_norm"))
    return "compressors";
  if (Has(name, "indexer.")) return "indexers";
  if (Has(name, "attn.")) return "attention";
  if (name == "embed.weight") return "embedding";
  if (name == "head.weight") return "head";
  if (Has(name, "norm")) return "norms";
  return "draft heads";
}

}  // namespace

int64_t OwnedBytes(const TensorSpec& t, const Layout& layout, int rank) {
  const Slice own = layout.SliceOf(t.name, rank);
  int64_t bytes = BytesOf(own.cols, BytesOf(own.rows, t.bytes()).size()).size();
  if (layout.decodes_engram() && Has(t.name, ".engram.embed."))
    bytes = t.name.ends_with(".scale") ? 0 : 2 * bytes;
  return bytes;
}

const char* MemoryPartOf(const TensorSpec& t, const Layout& layout) {
  return IsOnHost(t, layout) ? kOnHost : NameOfPart(t);
}

std::vector<MemoryPart> RankMemory(const ModelConfig& config, const Layout& layout, int rank) {
  std::vector<MemoryPart> parts;
  for (const TensorSpec& t : ShapeTable(config)) {
    if (t.part == Part::kVision || IsOnHost(t, layout)) continue;
    const char* name = NameOfPart(t);
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const MemoryPart& m) { return m.name == name; });
    if (part == parts.end()) part = parts.insert(parts.end(), {name, 0});
    part->bytes += OwnedBytes(t, layout, rank);
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  return parts;
}

int64_t HostMemory(const ModelConfig& config, const Layout& layout) {
  int64_t bytes = 0;
  for (const TensorSpec& t : ShapeTable(config)) bytes += IsOnHost(t, layout) ? t.bytes() : 0;
  return bytes;
}

}  // namespace deepinfer
