#include "ops/cost.h"

#include <algorithm>

namespace deepinfer {

namespace {

double Flops(double rows, const WeightView& w) {
  return 2 * rows * static_cast<double>(w.rows) * static_cast<double>(w.cols);
}

// Calls per_sequence(first, last) for every run of rows that belong to one sequence.
template <class Fn>
void ForSequences(int32_t n_rows, const int32_t* row_seqs, Fn per_sequence) {
  for (int32_t first = 0, r = 0; r < n_rows; ++r) {
    if (r + 1 < n_rows && row_seqs[r + 1] == row_seqs[first]) continue;
    per_sequence(first, r);
    first = r + 1;
  }
}

}  // namespace

int64_t ViewBytes(const WeightView& w) {
  if (w.data == nullptr) return 0;
  return w.rows * w.row_stride_bytes +
         (w.scale != nullptr ? ScaleRows(&w) * w.scale_stride_bytes : 0);
}

OpCost CostOf(const LinearArgs& a) {
  if (*a.n_rows == 0) return {};
  return {ViewBytes(a.w), Flops(*a.n_rows, a.w)};
}

OpCost CostOf(const EmbedArgs& a) { return {*a.n_rows * a.table.row_stride_bytes, 0}; }

OpCost CostOf(const GateUpArgs& a) {
  OpCost cost;
  for (int32_t i = 0; i < *a.pairs.n_active; ++i) {
    const ExpertWeights& e = a.experts[a.pairs.active[i]];
    const double pairs = a.pairs.begin[i + 1] - a.pairs.begin[i];
    cost += {ViewBytes(e.w1) + ViewBytes(e.w3), Flops(pairs, e.w1) + Flops(pairs, e.w3)};
  }
  return cost;
}

OpCost CostOf(const DownArgs& a) {
  OpCost cost;
  for (int32_t i = 0; i < *a.pairs.n_active; ++i) {
    const WeightView& w2 = a.experts[a.pairs.active[i]].w2;
    cost += {ViewBytes(w2), Flops(a.pairs.begin[i + 1] - a.pairs.begin[i], w2)};
  }
  return cost;
}

OpCost CostOf(const EngramGatherArgs& a) {
  const int64_t row_bytes = a.table.row_stride_bytes + a.table.scale_stride_bytes;
  return {*a.n_rows * a.columns * row_bytes, 0};
}

// The keys of a sequence are read once for all its rows.
OpCost CostOf(const IndexSelectArgs& a) {
  const int64_t row_bytes = RowBytes(a.keys.format, a.dim);
  OpCost cost;
  ForSequences(*a.n_rows, a.row_seqs, [&](int32_t first, int32_t last) {
    int64_t most = 0;
    for (int32_t r = first; r <= last; ++r) {
      int64_t keys = (a.positions[r] + 1) / a.ratio;
      if (a.mode == Candidates::kRead && a.n_candidates[r] >= 0)
        keys = std::min<int64_t>(keys, int64_t{a.n_candidates[r]} * a.block_size);
      most = std::max(most, keys);
      cost.flops += 2.0 * static_cast<double>(keys) * a.heads * a.dim;
    }
    cost.bytes += most * row_bytes;
  });
  return cost;
}

// Window rows of neighbours overlap; selected rows may.
OpCost CostOf(const AttentionArgs& a) {
  const int64_t window_bytes = RowBytes(a.window_format, a.head_dim);
  OpCost cost;
  ForSequences(*a.n_rows, a.row_seqs, [&](int32_t first, int32_t last) {
    int64_t selected = 0;
    for (int32_t r = first; r <= last; ++r) {
      const int64_t chosen = a.compressed.rows != nullptr ? a.n_selected[r] : 0;
      const int64_t rows = std::min(a.positions[r] + 1, a.window) + chosen;
      cost.flops += 4.0 * static_cast<double>(rows) * a.heads * a.head_dim;
      selected += chosen;
    }
    const int64_t begin = std::max(0, a.positions[first] + 1 - a.window);
    cost.bytes += (a.positions[last] + 1 - begin) * window_bytes;
    if (a.compressed.rows == nullptr) return;
    cost.bytes += std::min<int64_t>(selected, a.positions[last] + 1) *
                  RowBytes(a.compressed.format, a.head_dim);
  });
  return cost;
}

}  // namespace deepinfer
