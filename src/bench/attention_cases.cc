// Sparse attention and index scores on packed cache rows, which stay in the caches here.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "bench/case_parts.h"
#include "ops/attention.h"

namespace deepinfer {
namespace {

constexpr int32_t kPageRows = 64;

int64_t RowFloats(RowFormat format, int64_t rows, int64_t cols) {
  return CaseBuffers::RoundUp(RowBytes(format, cols) * rows / 4);
}

// Packed rows of random values, as the model stores them.
void FillCache(const KernelTable& k, RowFormat format, int32_t rows, int32_t cols, float* cache) {
  std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  FillActivations(k, Grid::kBf16, rows, cols, x.data());
  std::vector<int64_t> slots(static_cast<size_t>(rows));
  std::iota(slots.begin(), slots.end(), 0);
  const StoreRowsArgs a = {.n_rows = &rows,
                           .x = x.data(),
                           .slots = slots.data(),
                           .cache = reinterpret_cast<uint8_t*>(cache),
                           .cols = cols,
                           .format = format,
                           .fp8_max = 448};
  k.store_rows(a, {0, 1});
}

// One sequence in pages that lie behind each other.
struct Sequence {
  std::vector<int32_t> positions, zeros, pages;

  Sequence(int rows, int32_t first_position, int32_t n_cache_rows)
      : positions(static_cast<size_t>(rows)),
        zeros(static_cast<size_t>(rows)),
        pages(static_cast<size_t>(n_cache_rows / kPageRows)) {
    std::iota(positions.begin(), positions.end(), first_position);
    std::iota(pages.begin(), pages.end(), 0);
  }

  PagedRows Paged(const float* cache, RowFormat format) const {
    return {reinterpret_cast<const uint8_t*>(cache), pages.data(),
            static_cast<int64_t>(pages.size()), kPageRows, format};
  }
};

// Per row `topk` of `n` indices, ascending.
std::vector<int32_t> RandomSelection(int rows, int32_t topk, int32_t n) {
  std::mt19937 random(7);
  std::vector<int32_t> all(static_cast<size_t>(n)), selected;
  std::iota(all.begin(), all.end(), 0);
  for (int r = 0; r < rows; ++r)
    std::sample(all.begin(), all.end(), std::back_inserter(selected), topk, random);
  return selected;
}

std::string AttentionShape(const Shapes& s) {
  return fmt::format("{} x {}, {} rows", s.heads, int{s.kHeadDim}, s.window + s.topk);
}

// Consecutive positions share the window; each selects its own compressed rows.
KernelCase AttentionCase(const Shapes& s, const KernelTable& k, int rows, int threads) {
  constexpr int32_t kDim = Shapes::kHeadDim;
  constexpr RowFormat kWindow = RowFormat::kFp8Block32, kCompressed = RowFormat::kFp4Block16;
  const int32_t ring = s.window + rows;
  const int64_t n = int64_t{rows} * s.heads * kDim;
  const int64_t scratch = CaseBuffers::RoundUp(AttentionScratchFloats(kDim));
  const auto state = MakeCaseState(rows, RowFloats(kCompressed, s.compressed_rows, kDim) +
                                             RowFloats(kWindow, ring, kDim) + 2 * n +
                                             CaseBuffers::RoundUp(s.heads) + threads * scratch);
  float* compressed = state->buffers.Take(RowFloats(kCompressed, s.compressed_rows, kDim));
  float* window = state->buffers.Take(RowFloats(kWindow, ring, kDim));
  FillCache(k, kCompressed, s.compressed_rows, kDim, compressed);
  FillCache(k, kWindow, ring, kDim, window);
  const auto sequence = std::make_shared<Sequence>(rows, s.compressed_rows, s.compressed_rows);
  const auto selected =
      std::make_shared<std::vector<int32_t>>(RandomSelection(rows, s.topk, s.compressed_rows));
  selected->insert(selected->end(), static_cast<size_t>(rows), s.topk);  // then the counts
  float* q = state->buffers.Take(n);
  FillActivations(k, Grid::kBf16, rows, s.heads * kDim, q);

  AttentionArgs a = {};
  a.n_rows = &state->n_rows;
  a.q = q, a.o = state->buffers.Take(n);
  a.positions = sequence->positions.data();
  a.row_seqs = sequence->zeros.data(), a.row_slots = sequence->zeros.data();
  a.window_rows = reinterpret_cast<const uint8_t*>(window), a.window_format = kWindow;
  a.ring = ring, a.window = s.window;
  a.compressed = sequence->Paged(compressed, kCompressed);
  a.selected = selected->data(), a.n_selected = selected->data() + int64_t{rows} * s.topk;
  a.topk = s.topk;
  a.sink = reinterpret_cast<const uint8_t*>(state->buffers.Take(s.heads));  // zeros
  a.heads = s.heads, a.head_dim = kDim, a.scale = 0.044f;
  a.round_p = a.round = true;
  a.scratch = state->buffers.Take(threads * scratch), a.scratch_stride = scratch;
  const int64_t bytes = std::min(rows * s.topk, s.compressed_rows) * RowBytes(kCompressed, kDim) +
                        (s.window + rows - 1) * RowBytes(kWindow, kDim);
  KernelCase result = CachedCase(
      compressed, bytes,
      [state, sequence, selected, a, attention = k.attention](Work w) { attention(a, w); });
  result.flops = 4.0 * static_cast<double>(n) * (s.window + s.topk);
  return result;
}

std::string IndexShape(const Shapes& s) {
  return fmt::format("{} x {}, {} keys", s.index_heads, int{s.kIndexDim}, s.index_keys);
}

// Every row sees (nearly) all keys. The merge of what threads kept is another phase.
KernelCase IndexSelectCase(const Shapes& s, const KernelTable& k, int rows, int threads) {
  constexpr int32_t kDim = Shapes::kIndexDim;
  constexpr RowFormat kKeys = RowFormat::kFp4Block32;
  const int64_t n = int64_t{rows} * s.index_heads * kDim, lists = int64_t{rows} * (s.topk + 1);
  const int64_t scratch =
      CaseBuffers::RoundUp(IndexSelectScratchBytes(s.index_heads, kDim, s.topk, 0) / 4);
  const auto state = MakeCaseState(rows, RowFloats(kKeys, s.index_keys, kDim) + n +
                                             CaseBuffers::RoundUp(int64_t{rows} * s.index_heads) +
                                             CaseBuffers::RoundUp(lists) + threads * scratch);
  float* keys = state->buffers.Take(RowFloats(kKeys, s.index_keys, kDim));
  FillCache(k, kKeys, s.index_keys, kDim, keys);
  const auto sequence = std::make_shared<Sequence>(rows, s.index_keys - rows, s.index_keys);
  float* q = state->buffers.Take(n);
  float* weights = state->buffers.Take(int64_t{rows} * s.index_heads);
  FillActivations(k, Grid::kBf16, rows, s.index_heads * kDim, q);
  const QuantRowsArgs quantise = {.n_rows = &state->n_rows,
                                  .x = q,
                                  .y = q,
                                  .cols = s.index_heads * kDim,
                                  .format = kKeys,
                                  .fp8_max = 0};
  k.quant_rows(quantise, {0, 1});
  FillActivations(k, Grid::kF32, rows, s.index_heads, weights);

  IndexSelectArgs a = {};
  a.n_rows = &state->n_rows;
  a.q = q, a.weights = weights;
  a.positions = sequence->positions.data(), a.row_seqs = sequence->zeros.data();
  a.keys = sequence->Paged(keys, kKeys);
  a.heads = s.index_heads, a.dim = kDim, a.topk = s.topk, a.ratio = 1;
  a.weight_scale = 0.0156f;
  a.round = a.round_scores = true;
  a.selected = reinterpret_cast<int32_t*>(state->buffers.Take(lists));
  a.n_selected = a.selected + int64_t{rows} * s.topk;
  a.scratch = reinterpret_cast<uint8_t*>(state->buffers.Take(threads * scratch));
  a.scratch_stride = scratch * 4;
  KernelCase result =
      CachedCase(keys, RowBytes(kKeys, kDim) * s.index_keys,
                 [state, sequence, a, select = k.index_select](Work w) { select(a, w); });
  result.flops = 2.0 * static_cast<double>(n) * s.index_keys;
  return result;
}

}  // namespace

std::span<const ActivationOp> AttentionOps() {
  static constexpr ActivationOp kOps[] = {{"attention", AttentionShape, AttentionCase},
                                          {"index_select", IndexShape, IndexSelectCase}};
  return kOps;
}

}  // namespace deepinfer
