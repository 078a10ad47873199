// Quantiser and cache rows. Included inside namespace deepinfer::cpu::<isa>, after
// norm_rope.inc.h. Bound by latency at a few rows: threads share columns.

void QuantRows(const QuantRowsArgs& a, Work w) {
  const Span part = SplitColumns(a.cols, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t i = r * a.cols + part.begin; i < r * a.cols + part.end; i += 32) {
      QuantiseInto(a.format, a.x + i, a.fp8_max, a.y + i);
    }
  }
}

// Columns [c, c + 32) of row r.
static inline void StoreBlock(const StoreRowsArgs& a, int64_t r, float inverse, int64_t c) {
  const float* x = a.x + r * a.cols;
  uint8_t* row = a.cache + a.slots[r] * RowBytes(a.format, a.cols);
  alignas(64) float block[32];
  if (a.norm_weight != nullptr) {
    NormColumns(x, a.norm_weight, inverse, a.round, c, c + 32, block);
  } else {
    memcpy(block, x + c, sizeof block);
  }
  if (a.rope.cos != nullptr) RotateColumns(a.rope, r, false, a.round, a.cols, c, c + 32, block);
  if (a.format == RowFormat::kF32) {
    memcpy(row + 4 * c, block, sizeof block);
  } else {
    EncodeBlock(a.format, block, a.fp8_max, a.cols, c, row);
  }
}

void StoreRows(const StoreRowsArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.cols, 32, w);
  for (int64_t i = part.begin; i < part.end;) {
    const RowPart p = PartAt(i, a.cols, part);
    const float* x = a.x + p.row * a.cols;
    const float inverse = a.norm_weight != nullptr ? InverseRms(x, a.cols, a.eps) : 1.0f;
    for (int64_t c = p.begin; c < p.end; c += 32) StoreBlock(a, p.row, inverse, c);
    i += p.end - p.begin;
  }
}

void GatherRows(const GatherRowsArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.cols, 64, w);
  for (int64_t i = part.begin; i < part.end;) {
    const RowPart p = PartAt(i, a.cols, part);
    const int64_t n = p.end - p.begin;
    memcpy(a.y + i, a.x + int64_t{a.rows[p.row]} * a.cols + p.begin, static_cast<size_t>(n) * 4);
    i += n;
  }
}
