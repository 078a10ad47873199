// Products of checkpoint weights with rows of floats: what linear and the experts share. Included
// inside namespace deepinfer::cpu::<isa>, after weight_rows.inc.h.
//
// A panel is kPanel rows of the weight. kChunk of its columns are decoded to floats in the
// first-level cache and multiplied with up to kBlockRows rows of x, then the next kChunk columns.
// Every output has one vector of partial sums; lane j adds the products of columns j, j + kLanes,
// ... of its piece in ascending order, and the lanes are added in the order of Sum. None of that
// depends on how many rows or outputs share the work: a row's result does not either. Bound: weight
// bytes for few rows, FMA for many.

// Each row of x is read once for all weight rows of a panel.
constexpr int kPanel = 4;
// 4 x 512 floats: 8 KiB of the first-level cache.
constexpr int kChunk = 512;
// Rows of decoded weights lie this far apart: a multiple of 4 KiB would put them into the same
// cache sets.
constexpr int kChunkStride = kChunk + kLanes;
// Rows of x that share a decoded chunk: 64 x 5120 floats stay in a second-level cache of 2 MiB.
constexpr int kBlockRows = 64;

// Up to kBlockRows rows of x.
struct Inputs {
  const float* const* rows;
  int64_t n;
};

static inline Inputs Prepare(const WeightView&, int64_t, const float* const* x, int64_t n, float*) {
  return {x, n};
}

// Outputs that a thread takes at a time: whole cache lines of y where there are enough outputs for
// every thread.
static inline int64_t OutputUnit(int64_t n_outputs, int n_threads) {
  return n_outputs >= 16 * int64_t{n_threads} ? 16 : kPanel;
}

// Adds kLanes or fewer columns at k to the sums of kRows rows of x.
template <int kRows, bool kWhole>
static inline void MultiplyVec(const float* w, const float* const* x, int64_t c, int64_t k,
                               int64_t n, Vec (&sums)[kRows][kPanel]) {
  Vec weights[kPanel];
#pragma GCC unroll 4
  for (int j = 0; j < kPanel; ++j) {
    const float* p = w + j * kChunkStride + k;
    weights[j] = kWhole ? Load(p) : LoadFirst(p, n - k);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    const Vec v = kWhole ? Load(x[m] + c + k) : LoadFirst(x[m] + c + k, n - k);
#pragma GCC unroll 4
    for (int j = 0; j < kPanel; ++j) sums[m][j] = Fma(weights[j], v, sums[m][j]);
  }
}

// lanes[m][j] += w[j] * x[m] over n columns, those of x from c on.
template <int kRows>
static inline void MultiplyRows(const float* w, const float* const* x, int64_t c, int64_t n,
                                Vec (*lanes)[kPanel]) {
  Vec sums[kRows][kPanel];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanel; ++j) sums[m][j] = lanes[m][j];
  }
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) MultiplyVec<kRows, true>(w, x, c, k, n, sums);
  if (k < n) MultiplyVec<kRows, false>(w, x, c, k, n, sums);
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanel; ++j) lanes[m][j] = sums[m][j];
  }
}

// The same for any number of rows: as many at a time as the registers hold.
static void Multiply(const float* w, const float* const* x, int64_t n_x, int64_t c, int64_t n,
                     Vec (*lanes)[kPanel]) {
  int64_t m = 0;
#if defined(__AVX512F__)
  for (; m + 6 <= n_x; m += 6) MultiplyRows<6>(w, x + m, c, n, lanes + m);
  for (; m + 4 <= n_x; m += 4) MultiplyRows<4>(w, x + m, c, n, lanes + m);
#endif
  for (; m + 2 <= n_x; m += 2) MultiplyRows<2>(w, x + m, c, n, lanes + m);
  if (m < n_x) MultiplyRows<1>(w, x + m, c, n, lanes + m);
}

// y[m * y_stride + j] = sum_k x[m][k] * w[row + j][k] for j < kPanel and every row of x, by pieces
// of `piece` columns (0: one piece) as LinearArgs describes. Only the first n_out rows of the panel
// exist; the sums of the others mean nothing. Reads nothing beyond column w.cols of x or of the
// weight.
static void DotPanel(const WeightView& w, WeightDecode decode, int64_t row, int64_t n_out,
                     const Inputs& x, int64_t piece, float* y, int64_t y_stride) {
  alignas(64) float weights[kPanel * kChunkStride];
  alignas(64) Vec lanes[kBlockRows][kPanel];
  for (int64_t m = 0; m < x.n; ++m) {
    for (int j = 0; j < kPanel; ++j) lanes[m][j] = Zero(), y[m * y_stride + j] = 0.0f;
  }
  if (piece == 0) piece = w.cols;
  for (int64_t c = 0; c < w.cols; c += kChunk) {
    const int64_t end = Smaller(c + kChunk, w.cols);
    for (int j = 0; j < kPanel; ++j) {
      const int64_t source = row + Smaller(j, n_out - 1);
      DecodeWeights(w, decode, source, c, end - c, weights + j * kChunkStride);
      PrefetchWeights(w, source + kPanel, c, end - c);
    }
    for (int64_t k = c, stop; k < end; k = stop) {  // the parts of pieces inside this chunk
      const int64_t piece_end = Smaller((k / piece + 1) * piece, w.cols);
      stop = Smaller(piece_end, end);
      Multiply(weights + (k - c), x.rows, x.n, k, stop - k, lanes);
      if (stop < piece_end) continue;
      for (int64_t m = 0; m < x.n; ++m) {
        for (int j = 0; j < kPanel; ++j)
          y[m * y_stride + j] += Sum(lanes[m][j]), lanes[m][j] = Zero();
      }
    }
  }
}
