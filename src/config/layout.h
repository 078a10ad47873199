// Layout: which part of the model each rank of a world holds and computes (docs/ranks.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace deepinfer {

struct LayoutOptions {
  // How the ranks of a batch share the heads. ep: all on each; tp: over all of them; tp8r: over
  // o_groups neighbours, repeated; dp: a batch of its own for every rank. Experts by id over the
  // world in each.
  std::string layout = "tp";
  int64_t ranks = 1;
  // --cp: neighbours that run one batch, 0: all (in dp: 1). Batches are computed side by side, as
  // parts of one step.
  int64_t batch_ranks = 0;
  // exact: whole sums only, the bits of one rank. fast: partial sums, added in rank order.
  std::string reduce = "exact";
  // Engram tables: host (mapped, of which the ranks of a host share the pages), rows-fp8 or
  // rows-bf16 (a range of rows on each rank, as stored or decoded while loading).
  std::string engram = "host";
};

// A half-open range of columns, experts or words.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Everything is cut by rows of the weights [outputs, inputs], so a rank holds contiguous bytes, and
// the columns that a rank computes are whole sums; with --reduce fast wo_b, the shared experts' w2
// and some wo_a are cut by inputs instead. cuts: rank p of the ranks that share something
// has [cuts[p], cuts[p + 1]), maybe nothing.
using Cuts = std::vector<int64_t>;
inline Range At(const Cuts& cuts, int64_t p) {
  return {cuts[static_cast<size_t>(p)], cuts[static_cast<size_t>(p) + 1]};
}

// What a rank has of [0, of).
struct Share {
  Range own{0, 1};
  int64_t of = 1;
  bool whole() const { return own.size() == of; }
};
struct Slice {
  Share rows, cols;
};
// Which bytes a share of the rows has of a tensor of so many.
Range BytesOf(const Share& rows, int64_t bytes);

class Layout {
 public:
  // Throws Error(kInvalid) naming what does not fit: experts, heads, output groups, columns.
  Layout(const ModelConfig& config, const LayoutOptions& options);

  int size() const { return size_; }
  // Neighbours that run one batch.
  int batch_size() const { return batch_size_; }
  int n_batches() const { return size_ / batch_size_; }
  int batch(int rank) const { return rank / batch_size_; }
  // Ranks that share the heads: attention_size() neighbours.
  int attention_size() const { return attention_size_; }
  int attention_rank(int rank) const { return rank % attention_size_; }
  // Neighbours among them that share one output group, 1 when each has whole groups.
  int group_size() const { return group_size_; }

  bool adds_partial_sums() const { return adds_partial_sums_; }  // --reduce fast
  bool cuts_engram() const { return engram_ != Engram::kHost; }
  bool decodes_engram() const { return engram_ == Engram::kRowsBf16; }

  // Which part of a tensor of the checkpoint a rank holds: by its name, also that of its scales,
  // counted in rows and columns of the weight [outputs, inputs]; of attn_sink in heads.
  Slice SliceOf(std::string_view tensor, int rank) const;

  // Over the world: routed experts by id.
  Range experts(int layer, int rank) const;
  // Over the ranks of a batch.
  const Cuts& vocab() const { return vocab_; }
  // Of the shared experts: inner columns, and whole sums of w2 (hidden_size).
  const Cuts& shared_inner() const { return shared_inner_; }
  const Cuts& shared_out() const { return shared_out_; }
  // Over the ranks that share the heads.
  const Cuts& heads() const { return heads_; }
  const Cuts& low() const { return low_; }  // whole sums of wo_a: o_groups * o_lora_rank
  const Cuts& out() const { return out_; }  // whole sums of wo_b: hidden_size
  // Rows of wo_a of a rank: of low(), or, where it adds partial sums, all of its output groups.
  Range LowOf(int attention_rank) const;
  // Rows of the Engram table of a layer.
  Range EngramRows(int layer, int rank) const;
  // Over the ranks that share an output group: columns of one group's heads.
  const Cuts& group_columns() const { return group_columns_; }

 private:
  enum class Engram { kHost, kRowsFp8, kRowsBf16 };

  Slice SliceOfAttention(std::string_view tensor, int rank) const;
  Slice SliceOfExperts(std::string_view tensor, int rank) const;

  const ModelConfig config_;
  const bool adds_partial_sums_;
  const Engram engram_;
  int size_, batch_size_ = 1, attention_size_ = 1, group_size_ = 1;
  Cuts experts_, draft_experts_, vocab_, shared_inner_, shared_out_;
  Cuts heads_, low_, out_, group_columns_;
};

}  // namespace deepinfer
