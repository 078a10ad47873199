#include "config/layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace deepinfer {

namespace {

// `ranks` runs of equal length, a multiple of `unit`, until `count` is used up; the last ranks may
// have less, or nothing.
Cuts EqualRuns(int64_t count, int64_t unit, int64_t ranks) {
  const int64_t each = ((count + ranks - 1) / ranks + unit - 1) / unit * unit;
  Cuts cuts;
  for (int64_t r = 0; r <= ranks; ++r) cuts.push_back(std::min(r * each, count));
  return cuts;
}

// `ranks` runs whose numbers of units differ by one at most.
Cuts EvenRuns(int64_t count, int64_t unit, int64_t ranks) {
  const int64_t units = (count + unit - 1) / unit;
  Cuts cuts;
  for (int64_t r = 0; r <= ranks; ++r) cuts.push_back(std::min(units * r / ranks * unit, count));
  return cuts;
}

[[noreturn]] void Refuse(const LayoutOptions& o, const std::string& why) {
  const std::string batch = o.batch_ranks > 0 ? fmt::format(" with --cp {}", o.batch_ranks) : "";
  throw Error(Code::kInvalid,
              fmt::format("--layout {} on {} ranks{}: {}", o.layout, o.ranks, batch, why));
}

int BatchSize(const LayoutOptions& o) {
  if (o.layout == "dp" && o.batch_ranks > 1)
    Refuse(o, "expected a batch of its own for every rank, or --layout ep");
  if (o.layout == "dp") return 1;
  if (o.batch_ranks == 0) return static_cast<int>(o.ranks);
  if (o.batch_ranks < 0 || o.ranks % o.batch_ranks != 0)
    Refuse(o, "expected equal batches, --cp ranks each");
  return static_cast<int>(o.batch_ranks);
}

int AttentionSize(const ModelConfig& c, const LayoutOptions& o, int batch_size) {
  if (o.layout == "ep" || o.layout == "dp") return 1;
  if (o.layout == "tp") return batch_size;
  if (o.layout == "tp8r") return static_cast<int>(std::min<int64_t>(batch_size, c.o_groups));
  if (o.layout == "auto")
    throw Error(Code::kUnsupported,
                "--layout auto: not supported yet, expected dp, ep, tp or tp8r");
  throw Error(Code::kInvalid,
              fmt::format("--layout: expected one of dp, ep, tp, tp8r, found \"{}\"", o.layout));
}

constexpr int64_t kBlock = 32;        // one block of the quantisers, one scale tile
constexpr int64_t kVocabUnit = 128;   // words of a rank, whole cache lines of logits
constexpr int64_t kMostRanks = 1024;  // of a world

}  // namespace

Layout::Layout(const ModelConfig& c, const LayoutOptions& o)
    : config_(c), size_(static_cast<int>(o.ranks)) {
  if (o.ranks < 1 || o.ranks > kMostRanks)
    throw Error(Code::kInvalid,
                fmt::format("ranks: expected 1 to {}, found {}", kMostRanks, o.ranks));
  batch_size_ = BatchSize(o);
  attention_size_ = AttentionSize(c, o, batch_size_);
  if (c.n_routed_experts % size_ != 0)
    Refuse(o, fmt::format("expected a number of ranks that divides the {} experts of a layer",
                          c.n_routed_experts));
  if (batch_size_ % attention_size_ != 0)
    Refuse(o, fmt::format("expected a multiple of the {} ranks that share the heads",
                          attention_size_));
  experts_ = EqualRuns(c.n_routed_experts, 1, size_);
  draft_experts_ = EqualRuns(c.dspark_n_routed_experts, 1, size_);
  vocab_ = EqualRuns(c.vocab_size, kVocabUnit, batch_size_);
  const int64_t a = attention_size_, low = c.o_groups * c.o_lora_rank;
  if (c.num_attention_heads % a != 0)
    Refuse(o, fmt::format("expected a number of ranks that divides the {} heads",
                          c.num_attention_heads));
  if (c.o_groups % a != 0 && a % c.o_groups != 0)
    Refuse(o, fmt::format("expected whole output groups a rank, or whole ranks an output group, of "
                          "which there are {}",
                          c.o_groups));
  if (a > 1 && low % (a * kBlock) != 0)
    Refuse(o, fmt::format("expected cuts at multiples of {} of the {} columns between wo_a and "
                          "wo_b",
                          kBlock, low));
  group_size_ = static_cast<int>(std::max<int64_t>(1, a / c.o_groups));
  heads_ = EvenRuns(c.num_attention_heads, 1, a);
  low_ = EvenRuns(low, a > 1 ? kBlock : 1, a);
  out_ = EvenRuns(c.hidden_size, kBlock, a);
  group_columns_ =
      EvenRuns(c.num_attention_heads / c.o_groups * c.head_dim, c.head_dim, group_size_);
}

Range Layout::experts(int layer, int rank) const {
  return At(layer < config_.num_hidden_layers ? experts_ : draft_experts_, rank);
}

namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The number behind `key` in a name: "layers.7.ffn..." with "layers." is 7.
int NumberBehind(std::string_view name, std::string_view key) {
  const std::string_view digits = name.substr(name.find(key) + key.size());
  int number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace

Share Layout::RowsOf(std::string_view tensor, int rank) const {
  const int p = attention_rank(rank);
  const int64_t heads = config_.num_attention_heads, dim = config_.head_dim;
  if (tensor == "embed.weight" || tensor == "head.weight" || Has(tensor, "markov_head.head."))
    return {At(vocab_, rank % batch_size_), config_.vocab_size};
  if (Has(tensor, ".attn.attn_sink")) return {At(heads_, p), heads};
  if (Has(tensor, ".attn.wq_b."))
    return {{At(heads_, p).begin * dim, At(heads_, p).end * dim}, heads * dim};
  if (Has(tensor, ".attn.wo_a.")) return {At(low_, p), low_.back()};
  if (Has(tensor, ".attn.wo_b.")) return {At(out_, p), config_.hidden_size};
  if (!Has(tensor, ".ffn.experts.")) return {};
  const bool draft = tensor.starts_with("mtp.");
  const int layer =
      draft ? static_cast<int>(config_.num_hidden_layers) : NumberBehind(tensor, "layers.");
  const Range own = experts(layer, rank);
  const int expert = NumberBehind(tensor, ".experts.");
  return {{0, expert >= own.begin && expert < own.end ? 1 : 0}, 1};
}

}  // namespace deepinfer
