// The rows that a row of the step attends to, in the order of the contract. Included inside
// namespace deepinfer::cpu::<isa>, after row_codec.inc.h.

// n_window window rows from position window_begin, then n_selected compressed rows.
struct RowList {
  int64_t window_begin, n_window, n;
};

static inline RowList ListRows(const AttentionArgs& a, int64_t r) {
  const int64_t t = a.positions[r], first = t - a.window + 1;
  const int64_t begin = first > 0 ? first : 0, n_window = t + 1 - begin;
  return {begin, n_window, n_window + (a.compressed.rows != nullptr ? a.n_selected[r] : 0)};
}

// Where row i of the list is stored.
static inline const uint8_t* FindListed(const AttentionArgs& a, int64_t r, const RowList& list,
                                        int64_t i) {
  if (i < list.n_window) {
    const int64_t slot = int64_t{a.row_slots[r]} * a.ring + (list.window_begin + i) % a.ring;
    return a.window_rows + slot * RowBytes(a.window_format, a.head_dim);
  }
  const int64_t j = a.selected[r * a.topk + i - list.n_window];
  return PagedRow(a.compressed, a.row_seqs[r], j, RowBytes(a.compressed.format, a.head_dim));
}

static inline RowFormat FormatOfListed(const AttentionArgs& a, const RowList& list, int64_t i) {
  return i < list.n_window ? a.window_format : a.compressed.format;
}

// Selected rows lie anywhere in the cache: ask for rows [first, first + n) while others are used.
static inline void PrefetchListed(const AttentionArgs& a, int64_t r, const RowList& list,
                                  int64_t first, int64_t n) {
  for (int64_t i = first; i < first + n && i < list.n; ++i) {
    const uint8_t* row = FindListed(a, r, list, i);
    const int64_t bytes = RowBytes(FormatOfListed(a, list, i), a.head_dim);
    for (int64_t b = 0; b < bytes; b += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(row + b), _MM_HINT_T0);
    }
  }
}
