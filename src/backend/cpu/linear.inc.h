// The linear op. Included inside namespace deepinfer::cpu::<isa>, after matrix.inc.h.

// Outputs that a thread takes at a time: whole cache lines of y where there are enough outputs for
// every thread.
static inline int64_t OutputUnit(int64_t n_outputs, int n_threads) {
  return n_outputs >= 16 * int64_t{n_threads} ? 16 : kPanel;
}

// Outputs o ... o + n_out - 1 of up to kBlockRows rows of x and y.
static void LinearBlock(const LinearArgs& a, int64_t o, int64_t n_out, const float* const* x,
                        int64_t n_x, float* y) {
  alignas(64) float sums[kBlockRows * kPanel];
  DotPanel(a.w, a.decode, o, n_out, x, n_x, a.piece, sums, kPanel);
  RoundSums(a.round, n_x, sums);
  for (int64_t m = 0; m < n_x; ++m) {
    for (int64_t j = 0; j < n_out; ++j) y[m * a.y_stride + o + j] = sums[m * kPanel + j];
  }
}

void Linear(const LinearArgs& a, Work work) {
  const Span part = SplitWork(a.w.rows, OutputUnit(a.w.rows, work.n), work);
  const int64_t group_out = a.group_out > 0 ? a.group_out : a.w.rows;
  const float* x[kBlockRows];
  for (int64_t r = 0; r < *a.n_rows; r += kBlockRows) {
    const int64_t n_x = Smaller(kBlockRows, *a.n_rows - r);
    for (int64_t o = part.begin, next; o < part.end; o = next) {
      const int64_t group = o / group_out;
      next = Smaller(o + kPanel,
                     Smaller(part.end, (group + 1) * group_out));  // a panel stays inside its group
      for (int64_t m = 0; m < n_x; ++m) x[m] = a.x + (r + m) * a.x_stride + group * a.w.cols;
      LinearBlock(a, o, next - o, x, n_x, a.y + r * a.y_stride);
    }
  }
}
