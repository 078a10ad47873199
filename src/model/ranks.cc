#include "model/ranks.h"

#include <algorithm>
#include <cstring>

#include "base/formats.h"

namespace deepinfer {

void MergeWords(const MergeWordsArgs& a, Work w) {
  if (w.tid == 0) a.comm->Merge(reinterpret_cast<uint32_t*>(a.x), a.front + *a.n_rows * a.cols);
}

void GatherColumns(const GatherColumnsArgs& a, Work w) {
  if (w.tid == 0) a.comm->Gather(a.x, *a.n_rows, a.cols, *a.cuts);
}

void EmbedOwn(const EmbedOwnArgs& a, Work w) {
  const Span part = SplitColumns(a.table.cols, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    float* y = a.y + r * a.table.cols;
    const int64_t row = a.ids[r] - a.first;
    if (row < 0 || row >= a.table.rows) {
      std::fill(y + part.begin, y + part.end, 0.0f);
      continue;
    }
    const uint8_t* from = a.table.data + row * a.table.row_stride_bytes;
    for (int64_t d = part.begin; d < part.end; ++d) {
      uint16_t bits;
      std::memcpy(&bits, from + 2 * d, 2);
      y[d] = Bf16ToFloat(bits);
    }
  }
}

void Spread(const SpreadArgs& a, Work w) {
  const Span part = SplitColumns(a.hidden, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t s = 0; s < a.n_streams; ++s) {
      std::copy(a.x + r * a.hidden + part.begin, a.x + r * a.hidden + part.end,
                a.streams + (r * a.n_streams + s) * a.hidden + part.begin);
      if (part.begin == 0) a.pre[r * a.n_streams + s] = s == 0 ? 1.0f : 0.0f;
    }
  }
}

void CopyColumns(const CopyColumnsArgs& a, Work w) {
  const Span part = SplitColumns(a.to.size(), w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    std::copy(a.x + r * a.to.size() + part.begin, a.x + r * a.to.size() + part.end,
              a.y + r * a.y_cols + a.to.begin + part.begin);
  }
}

void PlaceRows(const PlaceRowsArgs& a, Work w) {
  const Span part = SplitColumns(a.cols, w);
  const auto bytes = static_cast<size_t>((part.end - part.begin) * 4);
  const auto* x = static_cast<const std::byte*>(a.x) + part.begin * 4;
  auto* y = static_cast<std::byte*>(a.y) + part.begin * 4;
  for (int64_t r = 0; r < *a.n_all; ++r) std::memset(y + r * a.cols * 4, 0, bytes);
  for (int64_t r = 0; r < *a.n_rows; ++r)
    std::memcpy(y + a.to[r] * a.cols * 4, x + r * a.cols * 4, bytes);
}

void OwnPairs(const OwnPairsArgs& a, Work w) {
  if (w.tid != w.n - 1) return;
  const ExpertPairs& p = a.pairs;
  const auto index = [&](int64_t expert) {
    return std::lower_bound(p.active, p.active + *p.n_active, expert) - p.active;
  };
  const int64_t first = index(a.own.begin), n_active = index(a.own.end) - first;
  const int32_t begin = p.begin[first], n_pairs = p.begin[first + n_active] - begin;
  std::copy_n(p.rows + begin, n_pairs, p.rows);
  std::copy_n(p.weights + begin, n_pairs, p.weights);
  for (int64_t i = 0; i <= n_active; ++i) p.begin[i] = p.begin[first + i] - begin;
  for (int64_t i = 0; i < n_active; ++i) {
    const int32_t expert = p.active[i] = p.active[first + i];
    for (int32_t pair = p.begin[i]; pair < p.begin[i + 1]; ++pair) {
      const int32_t* chosen = a.ids + int64_t{p.rows[pair]} * a.topk;
      const auto before =
          std::count_if(chosen, chosen + a.topk, [&](int32_t id) { return id < expert; });
      a.slots[pair] = static_cast<int32_t>(p.rows[pair] * a.topk + before);
    }
  }
  *p.n_active = static_cast<int32_t>(n_active);
  *a.n_slots = *a.n_rows * a.topk;
}

void SumSlots(const SumSlotsArgs& a, Work w) {
  const Span part = SplitColumns(a.hidden, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    float* y = a.y + r * a.hidden;
    std::fill(y + part.begin, y + part.end, 0.0f);
    for (int64_t i = 0; i < a.topk; ++i) {
      const float* slot = a.slots + (a.at[r] * a.topk + i) * a.hidden;
      for (int64_t d = part.begin; d < part.end; ++d) y[d] += slot[d];
    }
  }
}

}  // namespace deepinfer
