// The linear op. Included inside namespace deepinfer::cpu::<isa>, after matrix.inc.h or
// tiles.inc.h.

// Outputs o ... o + n_out - 1 of the rows of x; y is the first of these rows.
static void LinearPanel(const LinearArgs& a, int64_t o, int64_t n_out, const Inputs& x, float* y) {
  alignas(64) float sums[kBlockRows * kPanel];
  DotPanel(a.w, a.decode, o, n_out, x, a.piece, sums, kPanel);
  if (a.round) RoundInPlace(sums, x.n * kPanel);
  for (int64_t m = 0; m < x.n; ++m) {
    for (int64_t j = 0; j < n_out; ++j) y[m * a.y_stride + o + j] = sums[m * kPanel + j];
  }
}

static void LinearPanels(const LinearArgs& a, Work work) {
  const Span part = a.share_columns ? SplitColumns(a.w.rows, work)
                                    : SplitWork(a.w.rows, OutputUnit(a.w.rows, work.n), work);
  const int64_t group_out = a.group_out > 0 ? a.group_out : a.w.rows;
  float* scratch = a.scratch + work.tid * a.scratch_stride;
  const float* x[kBlockRows];
  const int64_t block = BlockRows(a.w.cols);
  for (int64_t r = 0; r < *a.n_rows; r += block) {
    const int64_t n_x = Smaller(block, *a.n_rows - r);
    for (int64_t o = part.begin, end; o < part.end; o = end) {  // the groups of this part
      const int64_t group = o / group_out;
      end = Smaller(part.end, (group + 1) * group_out);
      for (int64_t m = 0; m < n_x; ++m) x[m] = a.x + (r + m) * a.x_stride + group * a.w.cols;
      Inputs inputs = Prepare(a.w, a.piece, x, n_x, scratch);
      for (int64_t p = o; p < end; p += kPanel) {
        ComesNext(&inputs, a.w, p + kPanel < part.end ? p + kPanel : part.begin);
        LinearPanel(a, p, Smaller(kPanel, end - p), inputs, a.y + r * a.y_stride);
      }
    }
  }
}
