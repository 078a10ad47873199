#include <algorithm>
#include <cmath>

#include "ops/ref/reference.h"

namespace deepinfer::ref {

void Pool(const PoolArgs& a, Work w) {
  const Span part = SplitWork(*a.n_groups, 1, w);
  for (int64_t g = part.begin; g < part.end; ++g) {
    const int32_t row = a.group_rows[g];
    const int64_t ring = int64_t{a.row_slots[row]} * a.ring;
    const int64_t first = (ring + (a.positions[row] - 1) % a.ring) * a.cols;
    const int64_t second = (ring + a.positions[row] % a.ring) * a.cols;
    for (int64_t d = 0; d < a.cols; ++d) {
      const float s0 = a.score[first + d], s1 = a.score[second + d], top = std::max(s0, s1);
      const float e0 = std::exp(s0 - top), e1 = std::exp(s1 - top), sum = e0 + e1;
      a.y[g * a.cols + d] =
          RoundIf(a.round, e0 / sum * a.kv[first + d] + e1 / sum * a.kv[second + d]);
    }
  }
}

namespace {

const uint8_t* PagedRow(const PagedRows& p, int64_t seq, int64_t j, int64_t row_bytes) {
  const int64_t page = p.block_table[seq * p.table_stride + j / p.rows_per_page];
  return p.rows + (page * p.rows_per_page + j % p.rows_per_page) * row_bytes;
}

bool Better(const ScoredIndex& a, const ScoredIndex& b) {
  return a.score > b.score || (a.score == b.score && a.index < b.index);
}

// Keeps the best `keep` of all entries ever added; holds at most 2 * keep + 1 of them.
class Selection {
 public:
  Selection(ScoredIndex* entries, int64_t keep) : entries_(entries), keep_(keep) {}

  void Add(ScoredIndex e) {
    entries_[count_++] = e;
    if (count_ == 2 * keep_ + 1) Shrink();
  }

  // Writes the kept indices in ascending order and returns their number.
  int32_t Finish(int32_t* indices) {
    Shrink();
    for (int64_t i = 0; i < count_; ++i) indices[i] = entries_[i].index;
    std::sort(indices, indices + count_);
    return static_cast<int32_t>(count_);
  }

 private:
  void Shrink() {
    if (count_ <= keep_) return;
    std::nth_element(entries_, entries_ + keep_, entries_ + count_, Better);
    count_ = keep_;
  }

  ScoredIndex* entries_;
  int64_t keep_, count_ = 0;
};

float KeyScore(const IndexSelectArgs& a, int64_t r, const float* key) {
  const auto round = [&](float x) { return RoundIf(a.round_scores, x); };
  double sum = 0;
  for (int64_t h = 0; h < a.heads; ++h) {
    const float* q = a.q + (r * a.heads + h) * a.dim;
    const float weight = RoundIf(a.round, a.weights[r * a.heads + h] * a.weight_scale);
    sum += double{round(std::max(round(Dot(q, key, a.dim)), 0.0f) * weight)};
  }
  return round(static_cast<float>(sum));
}

void SelectRow(const IndexSelectArgs& a, int64_t r, float* key, ScoredIndex* entries) {
  const int64_t visible = (int64_t{a.positions[r]} + 1) / a.ratio;
  const int64_t blocks = (visible + a.block_size - 1) / std::max(a.block_size, 1);
  Selection rows(entries, a.topk);
  Selection best_blocks(entries + 2 * a.topk + 1, a.candidate_blocks);
  const int32_t* candidates = a.candidates + r * a.candidate_blocks;
  const bool masked = a.mode == Candidates::kRead && a.n_candidates[r] >= 0;
  float block_best = -INFINITY;
  for (int64_t j = 0; j < visible; ++j) {
    const int32_t index = static_cast<int32_t>(j);
    if (masked &&
        !std::binary_search(candidates, candidates + a.n_candidates[r], index / a.block_size))
      continue;
    DecodeRow(a.keys.format, PagedRow(a.keys, a.row_seqs[r], j, RowBytes(a.keys.format, a.dim)),
              a.dim, key);
    const float score = KeyScore(a, r, key);
    rows.Add({score, index});
    if (a.mode != Candidates::kWrite) continue;
    block_best = std::max(block_best, score);
    if ((j + 1) % a.block_size == 0 || j + 1 == visible) {
      const bool newest = j / a.block_size == blocks - 1;
      best_blocks.Add({newest ? INFINITY : block_best, index / a.block_size});
      block_best = -INFINITY;
    }
  }
  a.n_selected[r] = rows.Finish(a.selected + r * a.topk);
  if (a.mode == Candidates::kWrite) {
    const int32_t kept = best_blocks.Finish(a.candidates + r * a.candidate_blocks);
    a.n_candidates[r] = blocks <= a.candidate_blocks ? -1 : kept;
  }
}

}  // namespace

void IndexSelect(const IndexSelectArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  float* key = reinterpret_cast<float*>(a.scratch + w.tid * a.scratch_stride);
  ScoredIndex* entries = reinterpret_cast<ScoredIndex*>(key + kIndexKeyBlock * (a.dim + 1));
  for (int64_t r = part.begin; r < part.end; ++r) SelectRow(a, r, key, entries);
}

// One thread has chosen all of a row: nothing is left to do.
void IndexMerge(const IndexSelectArgs&, Work) {}

namespace {

// The attention of one head over one block of decoded rows; see AttentionArgs.
struct RunningSoftmax {
  float top = -1e30f, total = 0;

  // scores [n] are replaced by the weights of the value sum; returns the factor for what was summed
  // before.
  float Add(float* scores, int64_t n, bool round_p) {
    const float new_top = std::max(top, *std::max_element(scores, scores + n));
    const float shrink = std::exp(top - new_top);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float p = std::exp(scores[i] - new_top);
      sum += double{p};
      scores[i] = RoundIf(round_p, p);
    }
    total = total * shrink + static_cast<float>(sum);
    top = new_top;
    return shrink;
  }
};

// Decodes rows [first, first + n) of the row's list (window rows, then selected rows) to floats.
void DecodeListedRows(const AttentionArgs& a, int64_t r, int64_t window_begin, int64_t n_window,
                      int64_t first, int64_t n, float* rows) {
  for (int64_t i = 0; i < n; ++i) {
    float* row = rows + i * a.head_dim;
    if (first + i < n_window) {
      const int64_t slot = int64_t{a.row_slots[r]} * a.ring + (window_begin + first + i) % a.ring;
      DecodeRow(a.window_format, a.window_rows + slot * RowBytes(a.window_format, a.head_dim),
                a.head_dim, row);
    } else {
      const int64_t j = a.selected[r * a.topk + first + i - n_window];
      const int64_t bytes = RowBytes(a.compressed.format, a.head_dim);
      DecodeRow(a.compressed.format, PagedRow(a.compressed, a.row_seqs[r], j, bytes), a.head_dim,
                row);
    }
  }
}

void AttendHead(const AttentionArgs& a, int64_t r, int64_t h, float* scratch) {
  const int64_t t = a.positions[r], dim = a.head_dim;
  const int64_t window_begin = std::max<int64_t>(0, t - a.window + 1),
                n_window = t + 1 - window_begin;
  const int64_t n_rows = n_window + (a.compressed.rows != nullptr ? a.n_selected[r] : 0);
  float* rows = scratch;
  float* scores = rows + kAttentionBlock * dim;
  float* acc = scores + kAttentionBlock;
  const float* q = a.q + (r * a.heads + h) * dim;
  std::fill_n(acc, dim, 0.0f);
  RunningSoftmax softmax;
  for (int64_t first = 0; first < n_rows; first += kAttentionBlock) {
    const int64_t n = std::min<int64_t>(kAttentionBlock, n_rows - first);
    DecodeListedRows(a, r, window_begin, n_window, first, n, rows);
    for (int64_t i = 0; i < n; ++i) scores[i] = Dot(q, rows + i * dim, dim) * a.scale;
    const float shrink = softmax.Add(scores, n, a.round_p);
    for (int64_t d = 0; d < dim; ++d) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += double{scores[i]} * double{rows[i * dim + d]};
      acc[d] = acc[d] * shrink + static_cast<float>(sum);
    }
  }
  const float total = softmax.total + std::exp(LoadF32(a.sink + 4 * h) - softmax.top);
  for (int64_t d = 0; d < dim; ++d)
    a.o[(r * a.heads + h) * dim + d] = RoundIf(a.round, acc[d] / total);
}

}  // namespace

void Attention(const AttentionArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.heads, 1, w);
  float* scratch = a.scratch + w.tid * a.scratch_stride;
  for (int64_t i = part.begin; i < part.end; ++i) AttendHead(a, i / a.heads, i % a.heads, scratch);
}

}  // namespace deepinfer::ref
