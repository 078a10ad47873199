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

// As EvenRuns, or, where there are fewer units than ranks, one on each of some ranks that lie
// evenly apart.
Cuts SpreadRuns(int64_t count, int64_t unit, int64_t ranks) {
  const int64_t n_runs = std::min((count + unit - 1) / unit, ranks);
  const Cuts runs = EvenRuns(count, unit, n_runs);
  Cuts cuts = {0};
  int64_t run = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    if (run < n_runs && run * ranks / n_runs == r) ++run;
    cuts.push_back(runs[static_cast<size_t>(run)]);
  }
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

bool IsFast(const std::string& reduce) {
  if (reduce == "exact" || reduce == "fast") return reduce == "fast";
  throw Error(Code::kInvalid,
              fmt::format("--reduce: expected exact or fast, found \"{}\"", reduce));
}

constexpr int64_t kBlock = 32;        // one block of the quantisers, one scale tile
constexpr int64_t kVocabUnit = 128;   // words of a rank, whole cache lines of logits
constexpr int64_t kMostRanks = 1024;  // of a world

}  // namespace

Layout::Layout(const ModelConfig& c, const LayoutOptions& o)
    : config_(c),
      adds_partial_sums_(IsFast(o.reduce)),
      engram_(o.engram == "rows-fp8"    ? Engram::kRowsFp8
              : o.engram == "rows-bf16" ? Engram::kRowsBf16
                                        : Engram::kHost),
      size_(static_cast<int>(o.ranks)) {
  if (engram_ == Engram::kHost && o.engram != "host")
    throw Error(
        Code::kInvalid,
        fmt::format("--engram: expected one of host, rows-fp8, rows-bf16, found \"{}\"", o.engram));
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
  if (adds_partial_sums_ && group_size_ > 1 && c.head_dim % kBlock != 0)
    Refuse(o,
           fmt::format("expected heads of a multiple of {} columns, found {}", kBlock, c.head_dim));
  if (size_ > batch_size_ && (adds_partial_sums_ || cuts_engram()))
    throw Error(Code::kUnsupported,
                fmt::format("--layout {} on {} ranks in {} batches: expected --reduce exact and "
                            "--engram host, found {} and {}",
                            o.layout, o.ranks, n_batches(), o.reduce, o.engram));
  const int64_t inter = c.moe_intermediate_size;
  shared_inner_ = adds_partial_sums_
                      ? SpreadRuns(inter, inter % 128 == 0 ? 128 : kBlock, batch_size_)
                      : EqualRuns(inter, batch_size_ > 1 ? kBlock : 1, batch_size_);
  shared_out_ = EqualRuns(c.hidden_size, batch_size_ > 1 ? kBlock : 1, batch_size_);
  heads_ = EvenRuns(c.num_attention_heads, 1, a);
  low_ = EvenRuns(low, a > 1 ? kBlock : 1, a);
  out_ = EvenRuns(c.hidden_size, kBlock, a);
  group_columns_ =
      EvenRuns(c.num_attention_heads / c.o_groups * c.head_dim, c.head_dim, group_size_);
}

Range BytesOf(const Share& rows, int64_t bytes) {
  const auto byte = [&](int64_t row) {  // the product of row and bytes may not fit
    return bytes / rows.of * row + bytes % rows.of * row / rows.of;
  };
  return {byte(rows.own.begin), byte(rows.own.end)};
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

Range Layout::LowOf(int attention_rank) const {
  if (!adds_partial_sums_ || group_size_ == 1) return At(low_, attention_rank);
  const int64_t group = attention_rank / group_size_, rank = config_.o_lora_rank;
  return {group * rank, (group + 1) * rank};
}

Range Layout::EngramRows(int layer, int rank) const {
  const auto table = static_cast<size_t>(config_.engram_index(layer));
  return At(EqualRuns(config_.engram_num_embeddings[table], 1, size_), rank);
}

Slice Layout::SliceOfAttention(std::string_view tensor, int rank) const {
  const int p = attention_rank(rank);
  const int64_t heads = config_.num_attention_heads, dim = config_.head_dim;
  const Range own = At(heads_, p), low = LowOf(p);
  if (Has(tensor, ".attn_sink")) return {{own, heads}, {}};
  if (Has(tensor, ".attn.wq_b.")) return {{{own.begin * dim, own.end * dim}, heads * dim}, {}};
  if (Has(tensor, ".attn.wo_a.")) {
    if (!adds_partial_sums_ || group_size_ == 1) return {{low, low_.back()}, {}};
    return {{low, low_.back()}, {At(group_columns_, p % group_size_), group_columns_.back()}};
  }
  if (!Has(tensor, ".attn.wo_b.")) return {};
  if (adds_partial_sums_) return {{}, {low, low_.back()}};
  return {{At(out_, p), config_.hidden_size}, {}};
}

Slice Layout::SliceOfExperts(std::string_view tensor, int rank) const {
  if (Has(tensor, ".shared_experts.")) {
    const Share inner{At(shared_inner_, rank % batch_size_), config_.moe_intermediate_size};
    if (!Has(tensor, ".w2.")) return {inner, {}};
    if (adds_partial_sums_) return {{}, inner};
    return {{At(shared_out_, rank % batch_size_), config_.hidden_size}, {}};
  }
  if (!Has(tensor, ".ffn.experts.")) return {};
  const bool draft = tensor.starts_with("mtp.");
  const int layer =
      draft ? static_cast<int>(config_.num_hidden_layers) : NumberBehind(tensor, "layers.");
  const Range own = experts(layer, rank);
  const int expert = NumberBehind(tensor, ".experts.");
  return {{{0, expert >= own.begin && expert < own.end ? 1 : 0}, 1}, {}};
}

Slice Layout::SliceOf(std::string_view tensor, int rank) const {
  const bool markov =
      Has(tensor, "markov_head.head.") || (adds_partial_sums_ && Has(tensor, "markov_head.embed."));
  if (tensor == "embed.weight" || tensor == "head.weight" || markov)
    return {{At(vocab_, rank % batch_size_), config_.vocab_size}, {}};
  if (cuts_engram() && Has(tensor, ".engram.embed.")) {
    const int layer = NumberBehind(tensor, "layers.");
    const auto table = static_cast<size_t>(config_.engram_index(layer));
    return {{EngramRows(layer, rank), config_.engram_num_embeddings[table]}, {}};
  }
  return Has(tensor, ".attn.") ? SliceOfAttention(tensor, rank) : SliceOfExperts(tensor, rank);
}

}  // namespace deepinfer
