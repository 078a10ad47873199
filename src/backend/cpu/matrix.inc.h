// Products of checkpoint weights with rows of floats: what linear and the experts share. Included
// inside namespace deepinfer::cpu::<isa>, after weight_rows.inc.h.
//
// A panel is kPanel rows of the weight, taken kChunk columns at a time. For few rows of x the
// weights are decoded in registers, for more into floats in the first-level cache, where up to
// kBlockRows rows of x share them. Either way every output has one vector of partial sums; lane j
// adds the products of columns j, j + kLanes, ... in ascending order, and the lanes
// are added in the order of Sum. None of that depends on how many rows or outputs share the work: a
// row's result does not either.
//
// Bound: weight bytes for few rows, FMA for many. Of one core's read bandwidth, AVX-512: fp8 0.6 to
// 0.85 at one row, 0.3 to 0.37 at six; bf16 0.94 and 0.63; at 128 rows fp8 reaches 0.49 to 0.58 of
// the FMA peak (0.66 with x and decoded weights in the first-level cache). Tried without success:
// fp8 in registers for six rows, slower than through memory (0.34 against 0.38), too few registers;
// 48 and 64 rows of 8192 columns at a time (0.39 and 0.31 against 0.41).

// Weight rows whose sums fit in registers beside each other.
constexpr int kQuad = 4;
// Two of them share what they read of x.
constexpr int kPanel = 2 * kQuad;
// 8 x 512 floats: 16 KiB of the first-level cache.
constexpr int kChunk = 512;
// Rows of decoded weights lie this far apart: a multiple of 4 KiB would put them into the same
// cache sets.
constexpr int kChunkStride = kChunk + kLanes;
// Rows of x that share a decoded chunk: 64 x 5120 floats stay in a second-level cache of 2 MiB.
constexpr int kBlockRows = 64;
// As many as stay in a second-level cache of 2 MiB beside the weights.
static inline int64_t BlockRows(int64_t cols) { return cols > 6144 ? kBlockRows / 2 : kBlockRows; }

// Up to kBlockRows rows of x.
struct Inputs {
  const float* const* rows;
  int64_t n;
};

static inline Inputs Prepare(const WeightView&, const float* const* x, int64_t n, float*) {
  return {x, n};
}

// Says which panel comes after the one that is multiplied next; not used here.
static inline void ComesNext(Inputs*, const WeightView&, int64_t) {}

// Outputs that a thread takes at a time: whole cache lines of y where there are enough outputs for
// every thread.
static inline int64_t OutputUnit(int64_t n_outputs, int n_threads) {
  return n_outputs >= 16 * int64_t{n_threads} ? 16 : kQuad;
}

// Adds kLanes or fewer columns at k to the sums of kRows rows of x.
template <int kRows, bool kWhole>
static inline void MultiplyVec(const float* w, const float* const* x, int64_t c, int64_t k,
                               int64_t n, Vec (&sums)[kRows][kQuad]) {
  Vec weights[kQuad];
#pragma GCC unroll 4
  for (int j = 0; j < kQuad; ++j) {
    const float* p = w + j * kChunkStride + k;
    weights[j] = kWhole ? Load(p) : LoadFirst(p, n - k);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    const Vec v = kWhole ? Load(x[m] + c + k) : LoadFirst(x[m] + c + k, n - k);
#pragma GCC unroll 4
    for (int j = 0; j < kQuad; ++j) sums[m][j] = Fma(weights[j], v, sums[m][j]);
  }
}

// lanes[m][first + j] += w[j] * x[m] for a quad of weight rows, over n columns, those of x from c
// on.
template <int kRows>
static void MultiplyRows(const float* w, const float* const* x, int64_t c, int64_t n, int first,
                         Vec (*lanes)[kPanel]) {
  Vec sums[kRows][kQuad];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kQuad; ++j) sums[m][j] = lanes[m][first + j];
  }
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) MultiplyVec<kRows, true>(w, x, c, k, n, sums);
  if (k < n) MultiplyVec<kRows, false>(w, x, c, k, n, sums);
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kQuad; ++j) lanes[m][first + j] = sums[m][j];
  }
}

// The same for both quads of a panel.
template <int kRows>
static inline void MultiplyPanel(const float* w, const float* const* x, int64_t c, int64_t n,
                                 Vec (*lanes)[kPanel]) {
  MultiplyRows<kRows>(w, x, c, n, 0, lanes);
  MultiplyRows<kRows>(w + kQuad * kChunkStride, x, c, n, kQuad, lanes);
}

// The same for any number of rows: as many at a time as the registers hold.
static void Multiply(const float* w, const float* const* x, int64_t n_x, int64_t c, int64_t n,
                     Vec (*lanes)[kPanel]) {
  int64_t m = 0;
#if defined(__AVX512F__)
  for (; m + 6 <= n_x; m += 6) MultiplyPanel<6>(w, x + m, c, n, lanes + m);
  for (; m + 4 <= n_x; m += 4) MultiplyPanel<4>(w, x + m, c, n, lanes + m);
#endif
  for (; m + 2 <= n_x; m += 2) MultiplyPanel<2>(w, x + m, c, n, lanes + m);
  if (m < n_x) MultiplyPanel<1>(w, x + m, c, n, lanes + m);
}

// ---- few rows: decoding in registers ----

// Weight rows of a panel, as they lie in memory.
struct PanelRows {
  const uint8_t* data[kPanel];
  float scales[kPanel][kChunk / 32];  // of the columns of a chunk
};

// Points at column c of n_out rows and decodes the scales of n columns; rows of one tile share
// them.
static inline void StartChunk(const WeightView& w, int64_t row, int64_t n_out, int64_t c, int64_t n,
                              PanelRows* p) {
  const uint8_t* previous = nullptr;
  for (int j = 0; j < kPanel; ++j) {
    const int64_t source = row + Smaller(j, n_out - 1);
    p->data[j] = w.data + source * w.row_stride_bytes + WeightBytes(w.dtype, c);
    if (w.scale == nullptr) continue;
    const uint8_t* scale = ScalesAt(w, source, c);
    if (scale == previous) {
      memcpy(p->scales[j], p->scales[j - 1], sizeof p->scales[j]);
    } else {
      for (int64_t i = 0; i < n / 32; ++i) p->scales[j][i] = DecodeUe8m0(scale[i]);
    }
    previous = scale;
  }
}

// kStep columns of a weight row, from column k of the chunk on.
template <DType kType>
static inline void LoadColumns(const Fp8Decoder& decoder, const PanelRows& p, int j, int64_t k,
                               Vec (&y)[4]) {
  const uint8_t* data = p.data[j];
  if (kType == DType::kFp8Tile32) {
    LoadFp8Columns(decoder, data + k, p.scales[j] + k / 32, y);
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const int64_t column = k + i * kLanes;
    y[i] = kType == DType::kBf16 ? LoadBf16First(data + 2 * column, kLanes)
                                 : Load(reinterpret_cast<const float*>(data + 4 * column));
  }
}

// lanes[m][j] += w[first + j] * x[m] for a quad of rows, over the first `end` columns of a chunk,
// whole steps; those of x from c on. Fetches the rows kPanel further down, or what follows in a
// long row.
template <DType kType, int kRows>
static inline void MultiplyQuad(const PanelRows& p, int first, int64_t stride,
                                const float* const* x, int64_t c, int64_t end,
                                Vec (*lanes)[kPanel]) {
  constexpr int kStepBytes = kStep * (kType == DType::kF32 ? 4 : kType == DType::kBf16 ? 2 : 1);
  const int64_t ahead = kType == DType::kFp8Tile32 ? kPanel * stride : 1024;
  const Fp8Decoder decoder = MakeFp8Decoder();
  Vec sums[kRows][kQuad];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kQuad; ++j) sums[m][j] = lanes[m][first + j];
  }
  for (int64_t k = 0; k < end; k += kStep) {
#pragma GCC unroll 4
    for (int j = 0; j < kQuad; ++j) {
      Vec w[4];
      LoadColumns<kType>(decoder, p, first + j, k, w);
      Prefetch(p.data[first + j] + k * (kStepBytes / kStep) + ahead, kStepBytes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          sums[m][j] = Fma(w[i], Load(x[m] + c + k + i * kLanes), sums[m][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < kQuad; ++j) lanes[m][first + j] = sums[m][j];
  }
}

template <DType kType>
static void MultiplyFew(const PanelRows& p, int first, int64_t stride, const Inputs& x, int64_t c,
                        int64_t end, Vec (*lanes)[kPanel]) {
  const float* const* rows = x.rows;
  switch (x.n) {
    case 1:
      return MultiplyQuad<kType, 1>(p, first, stride, rows, c, end, lanes);
    case 2:
      return MultiplyQuad<kType, 2>(p, first, stride, rows, c, end, lanes);
#if defined(__AVX512F__)
    case 3:
      return MultiplyQuad<kType, 3>(p, first, stride, rows, c, end, lanes);
    case 4:
      return MultiplyQuad<kType, 4>(p, first, stride, rows, c, end, lanes);
    case 5:
      return MultiplyQuad<kType, 5>(p, first, stride, rows, c, end, lanes);
    case 6:
      return MultiplyQuad<kType, 6>(p, first, stride, rows, c, end, lanes);
#endif
  }
}

// Whole steps of the n columns of the chunk at c, for n_out rows of the panel. Returns where they
// end.
static int64_t MultiplySteps(const WeightView& w, const PanelRows& p, int64_t n_out,
                             const Inputs& x, int64_t c, int64_t n, Vec (*lanes)[kPanel]) {
  const int64_t end = n - n % kStep;
  for (int first = 0; first < n_out; first += kQuad) {
    switch (w.dtype) {
      case DType::kBf16:
        MultiplyFew<DType::kBf16>(p, first, w.row_stride_bytes, x, c, end, lanes);
        break;
      case DType::kF32:
        MultiplyFew<DType::kF32>(p, first, w.row_stride_bytes, x, c, end, lanes);
        break;
      default:
        MultiplyFew<DType::kFp8Tile32>(p, first, w.row_stride_bytes, x, c, end, lanes);
    }
  }
  return end;
}

// ---- panels ----

// Columns [c, end) of a panel as floats, kChunkStride apart.
static void DecodePanel(const WeightView& w, WeightDecode decode, int64_t row, int64_t n_out,
                        int64_t c, int64_t end, float* y) {
  for (int j = 0; j < kPanel; ++j) {
    const int64_t source = row + Smaller(j, n_out - 1);
    DecodeWeights(w, decode, source, c, end - c, y + j * kChunkStride);
    PrefetchWeights(w, source + kPanel, c, end - c);
  }
}

// Are the weights decoded in registers? If the sums leave enough of them.
static inline bool ServesFewRows(const WeightView& w, WeightDecode decode, int64_t n_x) {
  const bool fp8 = w.dtype == DType::kFp8Tile32 || w.dtype == DType::kFp8Row32;
  const int64_t most = kLanes == 8 ? 2 : fp8 ? 4 : 6;
  return n_x <= most && decode == WeightDecode::kAsStored && w.dtype != DType::kFp4Row32;
}

// y[m * y_stride + j] = sum_k x[m][k] * w[row + j][k] for j < kPanel and every row of x. Only the
// first n_out rows of the panel exist; the sums of the others mean nothing. Reads nothing beyond
// column w.cols of x or of the weight.
static void DotPanel(const WeightView& w, WeightDecode decode, int64_t row, int64_t n_out,
                     const Inputs& x, float* y, int64_t y_stride) {
  alignas(64) float weights[kPanel * kChunkStride];
  alignas(64) Vec lanes[kBlockRows][kPanel];
  for (int64_t m = 0; m < x.n; ++m) {
    for (Vec& v : lanes[m]) v = Zero();
  }
  const bool few = ServesFewRows(w, decode, x.n);
  for (int64_t c = 0; c < w.cols; c += kChunk) {
    const int64_t n = Smaller(kChunk, w.cols - c);
    int64_t done = 0;
    if (few) {
      PanelRows rows;
      StartChunk(w, row, n_out, c, n, &rows);
      done = MultiplySteps(w, rows, n_out, x, c, n, lanes);
    }
    if (done == n) continue;
    DecodePanel(w, decode, row, n_out, c, c + n, weights);
    Multiply(weights + done, x.rows, x.n, c + done, n - done, lanes);
  }
  for (int64_t m = 0; m < x.n; ++m) {
    for (int j = 0; j < kPanel; j += kQuad) {
      const Vec* v = lanes[m] + j;
      _mm_storeu_ps(y + m * y_stride + j, SumsOfFour(v[0], v[1], v[2], v[3]));
    }
  }
}
