// Quantiser and cache rows. Included inside namespace deepinfer::cpu::<isa>. Threads share the
// blocks of all rows.

void QuantRows(const QuantRowsArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.cols, 32, w);
  for (int64_t i = part.begin; i < part.end; i += 32) {
    QuantiseInto(a.format, a.x + i, a.fp8_max, a.y + i);
  }
}

void StoreRows(const StoreRowsArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.cols, 32, w);
  const int64_t bytes = RowBytes(a.format, a.cols);
  for (int64_t i = part.begin; i < part.end; i += 32) {
    const int64_t c = i % a.cols;
    uint8_t* row = a.cache + a.slots[i / a.cols] * bytes;
    if (a.format == RowFormat::kF32) {
      memcpy(row + 4 * c, a.x + i, 128);
    } else {
      EncodeBlock(a.format, a.x + i, a.fp8_max, a.cols, c, row);
    }
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
