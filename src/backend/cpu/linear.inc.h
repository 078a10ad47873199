// The linear op. Included inside namespace deepinfer::cpu::<isa>, after matrix.inc.h or
// tiles.inc.h.

// Results of more than kFewRows rows of at least kWideOutputs outputs go past the caches: they
// would not stay there until they are read, and lines that lie a power of two apart push each other
// out half written. That made 1.7, 1.6 and 1.4 times the speed of wq_b (32768 outputs, level amx)
// at 48, 128 and 512 rows; rows of 5120 gain nothing. Only where a panel is whole cache lines.
constexpr int64_t kFewRows = 32;
constexpr int64_t kWideOutputs = 8192;

// y[m * y_stride + j] = sums[m * kPanel + j] for n_x rows of x and n_out outputs.
static inline void StoreRows(const float* sums, int64_t n_x, int64_t n_out, float* y,
                             int64_t y_stride) {
  if (kPanel % 16 == 0 && n_out == kPanel && n_x > kFewRows && y_stride >= kWideOutputs &&
      y_stride % 16 == 0 && reinterpret_cast<uintptr_t>(y) % 64 == 0) {
    for (int64_t m = 0; m < n_x; ++m) {
      for (int64_t j = 0; j < kPanel; j += kLanes) {
        StorePastCaches(y + m * y_stride + j, Load(sums + m * kPanel + j));
      }
    }
    return;
  }
  for (int64_t m = 0; m < n_x; ++m) {
    for (int64_t j = 0; j < n_out; ++j) y[m * y_stride + j] = sums[m * kPanel + j];
  }
}

// Outputs o ... o + n_out - 1 of the rows of x; y is the first of these rows.
static void LinearPanel(const LinearArgs& a, int64_t o, int64_t n_out, const Inputs& x, float* y) {
  alignas(64) float sums[kBlockRows * kPanel];
  DotPanel(a.w, a.decode, o, n_out, x, sums, kPanel);
  if (a.round) RoundInPlace(sums, x.n * kPanel);
  StoreRows(sums, x.n, n_out, y + o, a.y_stride);
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
      Inputs inputs = Prepare(a.w, x, n_x, scratch);
      for (int64_t p = o; p < end; p += kPanel) {
        ComesNext(&inputs, a.w, p + kPanel < part.end ? p + kPanel : part.begin);
        LinearPanel(a, p, Smaller(kPanel, end - p), inputs, a.y + r * a.y_stride);
      }
    }
  }
  _mm_sfence();  // what went past the caches must be seen after the next barrier too
}
