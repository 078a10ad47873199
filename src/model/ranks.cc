#include "model/ranks.h"

#include <algorithm>
#include <cstring>

#include "base/formats.h"

namespace deepinfer {

bool DecodeBf16Row(const WeightView& table, int64_t row, uint16_t* y) {
  const uint8_t* from = table.data + row * table.row_stride_bytes;
  if (table.dtype == DType::kBf16) {
    std::memcpy(y, from, static_cast<size_t>(table.cols) * sizeof *y);
    return true;
  }
  const uint8_t* scales = table.scale + row * table.scale_stride_bytes;
  for (int64_t d = 0; d < table.cols; ++d)
    y[d] = FloatToBf16(E4m3ToFloat(from[d]) * Ue8m0ToFloat(scales[d / 32]));
  return std::find(scales, scales + table.cols / 32, uint8_t{255}) == scales + table.cols / 32;
}

void MergeWords(const MergeWordsArgs& a, Work w) {
  if (w.tid == 0) a.comm->Merge(static_cast<uint32_t*>(a.x), a.front + *a.n_rows * a.words);
}

void SumRows(const SumRowsArgs& a, Work w) {
  if (w.tid == 0) a.comm->Sum(a.x, *a.n_rows * a.cols);
}

void RoundRows(const RoundRowsArgs& a, Work w) {
  if (!a.round) return;
  const Span part = SplitColumns(a.cols, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t d = part.begin; d < part.end; ++d)
      a.x[r * a.cols + d] = RoundBf16(a.x[r * a.cols + d]);
  }
}

void GatherColumns(const GatherColumnsArgs& a, Work w) {
  if (w.tid == 0) a.comm->Gather(a.x, *a.n_rows, a.cols, *a.cuts);
}

template <class Id>
void OwnRows(const OwnRowsArgs<Id>& a, Work w) {
  const int64_t cols = a.table.cols;
  const Span part = SplitWork(int64_t{*a.n_rows} * a.columns, 1, w);
  for (int64_t i = part.begin; i < part.end; ++i) {
    uint16_t* y = a.y + i * cols;
    const int64_t row = a.ids[i] - a.first;
    if (row < 0 || row >= a.table.rows) {
      std::fill_n(y, cols, uint16_t{0});
      continue;
    }
    if (!DecodeBf16Row(a.table, row, y))
      ReportFault(a.fault, Fault::kEngramScaleNan, a.layer, a.ids[i]);
  }
}
template void OwnRows(const OwnRowsArgs<int32_t>& a, Work w);
template void OwnRows(const OwnRowsArgs<int64_t>& a, Work w);

void WidenRows(const WidenRowsArgs& a, Work w) {
  const Span part = SplitColumns(a.cols, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t d = part.begin; d < part.end; ++d)
      a.y[r * a.cols + d] = Bf16ToFloat(a.x[r * a.cols + d]);
  }
}

void CopyColumns(const CopyColumnsArgs& a, Work w) {
  const Span part = SplitColumns(a.y_cols, w);
  const int64_t begin = std::max(part.begin, a.to.begin), n = std::min(part.end, a.to.end) - begin;
  if (n <= 0) return;
  for (int64_t r = 0; r < *a.n_rows; ++r)
    std::copy_n(a.x + r * a.to.size() + begin - a.to.begin, n, a.y + a.at[r] * a.y_stride + begin);
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
      a.slots[pair] = static_cast<int32_t>(p.rows[pair] * a.row_slots + before);
    }
  }
  *p.n_active = static_cast<int32_t>(n_active);
  *a.n_slots = *a.n_rows * a.row_slots;
}

void SumSlots(const SumSlotsArgs& a, Work w) {
  const Span part = SplitColumns(a.hidden, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    float* y = a.y + r * a.hidden;
    std::fill(y + part.begin, y + part.end, 0.0f);
    for (int64_t i = 0; i < a.row_slots; ++i) {
      const float* slot = a.slots + (int64_t{a.at[r]} * a.row_slots + i) * a.hidden;
      for (int64_t d = part.begin; d < part.end; ++d) y[d] += slot[d];
    }
    if (!a.round) continue;
    for (int64_t d = part.begin; d < part.end; ++d) y[d] = RoundBf16(y[d]);
  }
}

}  // namespace deepinfer
