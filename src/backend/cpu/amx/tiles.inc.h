// Products of checkpoint weights with rows of bf16 values, on tiles. Included inside namespace
// deepinfer::cpu::amx, after bf16_weights.inc.h and tile_registers.inc.h. Offers what matrix.inc.h
// offers.
//
// A tile of 16 weight rows x 32 columns, as the weights lie in memory, times a tile of 32 columns x
// 16 rows of x gives 16 x 16 sums. Every output has one accumulator that adds the columns of its
// piece in ascending order, a pair at a time; chunks and blocks only store and reload it. So a
// row's result does not depend on the rows or outputs beside it. Bound: decoding for few rows, tile
// multiplications for many.

constexpr int kPanel = 32;      // weight rows: two tiles, so that two chains hide the latency
constexpr int kBlockRows = 64;  // rows of x: four tiles, packed once and read by every panel
constexpr int kRowTiles = kPanel / 16, kColumnTiles = kBlockRows / 16;

// Decoded rows lie this far apart, in words: a multiple of 4 KiB would put them into the same cache
// sets.
constexpr int kChunkStride = kChunk + 32;

// Rows of x as tiles: of every 16 rows, of every 32 columns, [16 pairs of columns][16 rows][2].
// Rows and columns that do not exist are zero.
struct Inputs {
  const uint16_t* tiles;
  int64_t n;      // rows
  int64_t steps;  // tiles of 32 columns
};

static inline int64_t OutputUnit(int64_t n_outputs, int n_threads) {
  return n_outputs >= kPanel * int64_t{n_threads} ? kPanel : 16;
}

// ---- packing ----

// scratch: LinearScratchFloats(cols).
static Inputs Prepare(const float* const* x, int64_t n, int64_t cols, float* scratch) {
  uint16_t* tiles = reinterpret_cast<uint16_t*>(scratch);
  const int64_t steps = (cols + 31) / 32;
  for (int64_t first = 0; first < n; first += 16) {
    for (int64_t s = 0; s < steps; ++s) {
      IntVec rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        rows[i] = first + i < n ? LoadPairs(x[first + i] + 32 * s, cols - 32 * s) : SetInt(0);
      }
      Transpose(rows);
      uint16_t* tile = tiles + (first / 16 * steps + s) * kTileWords;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tile + 32 * i, rows[i]);
    }
  }
  return {tiles, n, steps};
}

// ---- multiplying ----

typedef float TileSums[kRowTiles][16][16];  // [weight row / 16][weight row % 16][row of x]

// Tile loads of g++ 12 do not tell the compiler that they read memory: what they read must be
// written before this.
static inline void FinishStores(const uint16_t* w, const uint16_t* x, const TileSums* c) {
  asm volatile("" : : "r"(w), "r"(x), "r"(c) : "memory");
}

// Adds `steps` tiles of 32 columns to the sums of 16 rows of x.
static inline void MultiplyOne(const uint16_t* w, const uint16_t* x, int64_t steps, TileSums* c) {
  _tile_loadd(0, c[0][0], 64);
  _tile_loadd(1, c[0][1], 64);
  for (int64_t s = 0; s < steps; ++s) {
    _tile_loadd(6, x + s * kTileWords, 64);
    _tile_loadd(4, w + 32 * s, kChunkStride * 2);
    _tile_loadd(5, w + 16 * kChunkStride + 32 * s, kChunkStride * 2);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
  }
  _tile_stored(0, c[0][0], 64);
  _tile_stored(1, c[0][1], 64);
}

// The same for 32 rows of x, whose tiles lie x_stride words apart.
static inline void MultiplyTwo(const uint16_t* w, const uint16_t* x, int64_t x_stride,
                               int64_t steps, TileSums* c) {
  _tile_loadd(0, c[0][0], 64);
  _tile_loadd(1, c[0][1], 64);
  _tile_loadd(2, c[1][0], 64);
  _tile_loadd(3, c[1][1], 64);
  for (int64_t s = 0; s < steps; ++s) {
    _tile_loadd(6, x + s * kTileWords, 64);
    _tile_loadd(7, x + x_stride + s * kTileWords, 64);
    _tile_loadd(4, w + 32 * s, kChunkStride * 2);
    _tile_loadd(5, w + 16 * kChunkStride + 32 * s, kChunkStride * 2);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c[0][0], 64);
  _tile_stored(1, c[0][1], 64);
  _tile_stored(2, c[1][0], 64);
  _tile_stored(3, c[1][1], 64);
}

// Columns [32 * first_step, 32 * (first_step + steps)) of all rows of x; w: decoded rows.
static inline void Multiply(const uint16_t* w, const Inputs& x, int64_t first_step, int64_t steps,
                            TileSums* sums) {
  const int64_t stride = x.steps * kTileWords;
  const uint16_t* tiles = x.tiles + first_step * kTileWords;
  FinishStores(w, tiles, sums);
  int64_t t = 0;
  for (; 16 * (t + 1) < x.n; t += 2) MultiplyTwo(w, tiles + t * stride, stride, steps, sums + t);
  if (16 * t < x.n) MultiplyOne(w, tiles + t * stride, steps, sums + t);
}

// totals += sums; sums = 0, for the tiles that hold n rows of x.
static inline void EndPiece(int64_t n, TileSums* sums, TileSums* totals) {
  float *from = &sums[0][0][0][0], *to = &totals[0][0][0][0];
  const int64_t floats = (n + 15) / 16 * kRowTiles * 256;
  for (int64_t i = 0; i < floats; i += kLanes) {
    Store(to + i, Load(to + i) + Load(from + i));
    Store(from + i, Zero());
  }
}

// y[m * y_stride + j]: the totals turned so that a row of x is a row of y.
static void StoreTotals(TileSums* totals, int64_t n, float* y, int64_t y_stride) {
  for (int64_t t = 0; 16 * t < n; ++t) {
    for (int g = 0; g < kRowTiles; ++g) {
      IntVec rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) rows[i] = Bits(Load(totals[t][g][i]));
      Transpose(rows);
      alignas(64) float turned[16][16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) Store(turned[i], FromBits(rows[i]));
      for (int64_t m = 16 * t; m < Smaller(n, 16 * (t + 1)); ++m) {
        Store(y + m * y_stride + 16 * g, Load(turned[m - 16 * t]));
      }
    }
  }
}

// As DotPanel of matrix.inc.h. Pieces are multiples of 32 columns; the weight is not kF32.
static void DotPanel(const WeightView& w, WeightDecode decode, int64_t row, int64_t n_out,
                     const Inputs& x, int64_t piece, float* y, int64_t y_stride) {
  alignas(64) uint16_t weights[kPanel * kChunkStride];  // rows beyond n_out hold anything
  alignas(64) TileSums sums[kColumnTiles], totals[kColumnTiles];
  const size_t used = static_cast<size_t>((x.n + 15) / 16) * sizeof(TileSums);
  memset(sums, 0, used);
  memset(totals, 0, used);
  if (piece == 0) piece = w.cols;
  for (int64_t c = 0; c < w.cols; c += kChunk) {
    const int64_t end = Smaller(c + kChunk, w.cols);
    for (int j = 0; j < n_out; ++j) {
      DecodeToBf16(w, decode, row + j, c, end - c, weights + j * kChunkStride);
      PrefetchWeights(w, row + j + kPanel, c, end - c);
    }
    for (int64_t k = c, stop; k < end; k = stop) {  // the parts of pieces inside this chunk
      const int64_t piece_end = Smaller((k / piece + 1) * piece, w.cols);
      stop = Smaller(piece_end, end);
      Multiply(weights + (k - c), x, k / 32, (stop - k + 31) / 32, sums);
      if (stop == piece_end) EndPiece(x.n, sums, totals);
    }
  }
  StoreTotals(totals, x.n, y, y_stride);
}
