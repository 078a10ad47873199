#include "config/synthetic.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace deepinfer {

namespace {

using nlohmann::json;

// Released layers by kind: 2 window-only, 18 of ratio 2 in 3 groups behind a source, 20 of ratio 1
// in 5 groups; 2 have an Engram. 3 draft stages have a third of a layer's experts.
constexpr int64_t kLayers = 40, kWindow = 2, kRatio2 = 18, kSources2 = 3, kRatio1 = 20,
                  kSources1 = 5, kEngram = 2, kStages = 3;

// round(part / whole * n)
int64_t Share(int64_t n, int64_t part, int64_t whole) {
  return (2 * n * part + whole) / (2 * whole);
}

template <class T>
bool ReadNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

void CheckRange(std::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(Code::kInvalid,
              fmt::format("--synthetic {}: expected an integer from {} to {}, found "
                          "{}",
                          name, low, high, value));
}

bool IsPrime(int64_t n) {
  if (n < 2) return false;
  for (int64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

}  // namespace

SyntheticModel SyntheticModel::Parse(std::string_view text) {
  SyntheticModel m;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    const std::string_view value = item.substr(std::min(equals + 1, item.size()));
    int64_t* const field = name == "layers"    ? &m.layers
                           : name == "experts" ? &m.experts
                           : name == "vocab"   ? &m.vocab
                           : name == "engram"  ? &m.engram
                           : name == "stages"  ? &m.stages
                                               : nullptr;
    const bool known = field != nullptr || name == "seed";
    if (known && (field != nullptr ? ReadNumber(value, field) : ReadNumber(value, &m.seed)))
      continue;
    throw Error(Code::kInvalid,
                fmt::format("--synthetic: expected numbers for layers, experts, vocab, engram, "
                            "stages or seed, as in layers=4,experts=64, found \"{}\"",
                            item));
  }
  CheckRange("layers", m.layers, 1, kLayers);
  CheckRange("experts", m.experts, 6, 384);
  CheckRange("vocab", m.vocab, 256, 129280);
  CheckRange("engram", m.engram, 2, 16000000);
  CheckRange("stages", m.stages, -1, kStages);
  return m;
}

LayerCut CutLayers(int64_t n) {
  const int64_t window = n < 3 ? 0 : std::max<int64_t>(1, Share(n, kWindow, kLayers));
  const int64_t ratio2 =
      n == 1 ? 0 : std::max<int64_t>(1, Share(n - window, kRatio2, kLayers - kWindow));
  const int64_t ratio1 = n - window - ratio2;
  LayerCut cut;
  const auto add = [&cut](int64_t count, int ratio) {
    cut.ratios.insert(cut.ratios.end(), static_cast<size_t>(count), ratio);
  };
  add(window, 0);
  add(ratio2, 2);
  add(ratio1, 1);

  const int first2 = static_cast<int>(window), first1 = static_cast<int>(window + ratio2);
  const int64_t sources2 =
      ratio2 == 0 ? 0 : std::max<int64_t>(1, Share(ratio2, kSources2, kRatio2));
  const int64_t sources1 = std::max<int64_t>(1, Share(ratio1, kSources1, kRatio1));
  for (int64_t i = 0; i < sources2; ++i)
    cut.kv_sources.push_back(first2 + static_cast<int>(i * ratio2 / sources2));
  cut.kv_sources.push_back(first1);
  cut.index_sources = cut.kv_sources;
  for (int64_t i = 1; i < sources1; ++i)
    cut.index_sources.push_back(first1 + static_cast<int>(i * ratio1 / sources1));
  // Released: the last window-only layer and the last source of ratio 2.
  const int64_t engram = n < 4 ? 0 : std::max<int64_t>(1, Share(n, kEngram, kLayers));
  if (engram >= 1) cut.engram.push_back(first2 - 1);
  if (engram >= 2) cut.engram.push_back(cut.kv_sources[static_cast<size_t>(sources2 - 1)]);
  return cut;
}

namespace {

void AddStages(const SyntheticModel& m, json* text) {
  json& t = *text;
  const int64_t released = t["n_routed_experts"];
  const int64_t draft_released = t["dspark_n_routed_experts"],
                topk = t["dspark_num_experts_per_tok"];
  t["num_nextn_predict_layers"] =
      m.stages >= 0 ? m.stages : std::max<int64_t>(1, Share(m.layers, kStages, kLayers));
  t["dspark_n_routed_experts"] = std::max(topk, Share(m.experts, draft_released, released));
  t["dspark_noise_token_id"] = std::min(t["dspark_noise_token_id"].get<int64_t>(), m.vocab - 1);
  std::vector<int64_t> taps;
  for (int64_t layer = std::max<int64_t>(0, m.layers - 3); layer < m.layers; ++layer)
    taps.push_back(layer);
  t["dspark_target_layer_ids"] = taps;
}

}  // namespace

ModelConfig SyntheticConfig(const SyntheticModel& m) {
  json document = json::parse(kReleasedConfig);
  document.erase("vision_config");
  if (document["image_token_id"] >= m.vocab) document.erase("image_token_id");
  json& text = document["text_config"];
  const LayerCut cut = CutLayers(m.layers);
  AddStages(m, &text);
  text["num_hidden_layers"] = m.layers;
  text["n_routed_experts"] = m.experts;
  text["vocab_size"] = m.vocab;
  text["compress_ratios"] = cut.ratios;
  text["kv_source_layer_ids"] = cut.kv_sources;
  text["index_source_layer_ids"] = cut.index_sources;
  text["candidate_source_layer_id"] = cut.kv_sources.back();
  text["engram_layer_ids"] = cut.engram;
  text["engram_vocab_size"] = m.engram;
  const int64_t classes = text["engram_compressed_vocab_size"];
  text["engram_compressed_vocab_size"] = std::min(classes, m.vocab);
  const int64_t columns =
      (text["engram_max_ngram_size"].get<int64_t>() - 1) * text["engram_n_heads"].get<int64_t>();
  const std::vector<int64_t> primes = EngramPrimes(m.engram, columns * std::ssize(cut.engram));
  std::vector<int64_t> rows(cut.engram.size());
  for (size_t i = 0; i < primes.size(); ++i) rows[i / static_cast<size_t>(columns)] += primes[i];
  text["engram_num_embeddings"] = rows;
  return ModelConfig::Parse(document.dump(), "synthetic config");
}

std::vector<int64_t> EngramPrimes(int64_t vocab_size, int64_t count) {
  std::vector<int64_t> primes;
  for (int64_t n = vocab_size; std::ssize(primes) < count; ++n) {
    if (IsPrime(n)) primes.push_back(n);
  }
  return primes;
}

std::string LayerKind(const ModelConfig& c, int layer) {
  if (c.is_draft_stage(layer)) return "draft stage";
  const int ratio = c.ratio(layer);
  std::string kind = "window";
  if (ratio > 0) {
    kind = fmt::format("ratio {} {}", ratio,
                       c.is_kv_source(layer)      ? "source"
                       : c.is_index_source(layer) ? "index source"
                                                  : "reuse");
  }
  return c.engram_index(layer) >= 0 ? kind + " + engram" : kind;
}

}  // namespace deepinfer
