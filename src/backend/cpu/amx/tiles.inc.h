// Products of checkpoint weights with rows of bf16 values, on tiles. Included inside namespace
// deepinfer::cpu::amx, after panel_weights.inc.h. Offers what matrix.inc.h offers.
//
// A tile of 16 weight rows x 32 columns times a tile of 32 columns x 16 rows of x gives 16 x 16
// sums. Every output has one accumulator that adds the tiles of its row in ascending order;
// storing and reloading it changes nothing. So a row's result does not depend on the rows or
// outputs beside it.

typedef float TileSums[kPanel / 16][16][16];  // [weight row / 16][weight row % 16][row of x]

constexpr int kColumnTiles = kBlockRows / 16;
constexpr int kSectionGroups = 2;  // decoded at a time for many rows: 16 KiB
constexpr int kSection = kSectionGroups * kGroup;

static inline int64_t OutputUnit(int64_t, int) { return kPanel; }

// ---- few rows: decode and multiply side by side ----

// Tile 2b + t holds the sums of block b of x and of tile t of the weights. With three blocks two
// tiles are left for operands, 6 for weights and 7 for x; tiles of x are then loaded twice, the
// last one once.
template <int kBlocks>
static DI_INLINE void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  if (kBlocks >= 2) _tile_zero(2);
  if (kBlocks >= 2) _tile_zero(3);
  if (kBlocks == 3) _tile_zero(4);
  if (kBlocks == 3) _tile_zero(5);
}

template <int kBlocks>
static DI_INLINE void StoreSums(TileSums* sums) {
  _tile_stored(0, sums[0][0], 64);
  _tile_stored(1, sums[0][1], 64);
  if (kBlocks >= 2) _tile_stored(2, sums[1][0], 64);
  if (kBlocks >= 2) _tile_stored(3, sums[1][1], 64);
  if (kBlocks == 3) _tile_stored(4, sums[2][0], 64);
  if (kBlocks == 3) _tile_stored(5, sums[2][1], 64);
  Fence();
}

// Multiplies the tile of the first 16 weight rows at w with tiles of x that lie x_block apart.
template <int kBlocks>
static DI_INLINE void MultiplyFirst(const uint16_t* w, const uint16_t* x, int64_t x_block,
                                    int64_t width) {
  if (kBlocks == 3) {
    _tile_loadd(6, w, 64);
    _tile_loadd(7, x, 64);
    _tile_dpbf16ps(0, 6, 7);
    _tile_loadd(7, x + x_block, 64);
    _tile_dpbf16ps(2, 6, 7);
    _tile_loadd(7, x + 2 * x_block, 64);
    _tile_dpbf16ps(4, 6, 7);
    return;
  }
  _tile_loadd(6, x, width * 4);
  if (kBlocks == 2) _tile_loadd(7, x + x_block, width * 4);
  _tile_loadd(4, w, 64);
  _tile_dpbf16ps(0, 4, 6);
  if (kBlocks == 2) _tile_dpbf16ps(2, 4, 7);
}

// Then that of the other 16 rows with the same tiles of x.
template <int kBlocks>
static DI_INLINE void MultiplySecond(const uint16_t* w, const uint16_t* x, int64_t x_block) {
  if (kBlocks == 3) {
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(5, 6, 7);
    _tile_loadd(7, x + x_block, 64);
    _tile_dpbf16ps(3, 6, 7);
    _tile_loadd(7, x, 64);
    _tile_dpbf16ps(1, 6, 7);
    return;
  }
  _tile_loadd(5, w, 64);
  _tile_dpbf16ps(1, 5, 6);
  if (kBlocks == 2) _tile_dpbf16ps(3, 5, 7);
}

// Multiplies the group `now`; kDecode: decodes the following one, which is not the last of its
// rows, into `next`. x: the group's first tile of the first block.
template <int kBlocks, bool kDecode, class Panel>
static DI_INLINE void MultiplyGroup(Panel* panel, const uint16_t* now, uint16_t* next,
                                    const uint16_t* x, int64_t x_block, int64_t width) {
  if (kDecode) panel->StartGroup();
#pragma GCC unroll 4
  for (int t = 0; t < kGroupTiles; ++t) {
    if (kDecode) panel->template Decode4<false>(next + 8 * t * kTileColumns);
    Fence();
    MultiplyFirst<kBlocks>(now + 2 * t * kTileWords, x, x_block, width);
    if (kDecode) panel->template Decode4<false>(next + (8 * t + 4) * kTileColumns);
    Fence();
    MultiplySecond<kBlocks>(now + (2 * t + 1) * kTileWords, x, x_block);
    x += width * kTileColumns;
  }
  if (kDecode) panel->NextGroup();
}

// Up to 48 rows of x. Bound: weight bytes and decoding, which hide each other in part: fp4 panels
// in the second-level cache are decoded as fast as memory delivers them. Share of the read stream
// at 1, 2, 6 and 16 rows: fp4 [2304, 5120] 62, 62, 60, 54 %, [5120, 2304] 57, -, 54, 47 %; fp8
// [2304, 5120] 79, -, 78, - %, [32768, 1280] 67, -, 63, - %. Tried without success: prefetching
// the tiles of x (no change at 16 rows). 48 rows, with all sums in tiles, reach 1.23 (fp8
// [32768, 1280]), 1.29 and 1.37 (fp4) times the speed of BlockPanel.
template <int kBlocks, class Panel>
static bool StreamPanel(Panel panel, const Inputs& x, TileSums* sums) {
  alignas(64) uint16_t ring[2][kGroupWords];
  const int64_t groups = x.steps / kGroupTiles;
  const uint16_t* tile = x.tiles;
  const int64_t x_group = kGroup * x.width, x_block = groups * x_group;
  DecodeGroup(&panel, groups == 1, ring[0]);
  ZeroSums<kBlocks>();
  for (int64_t g = 0; g < groups; ++g, tile += x_group) {
    uint16_t *now = ring[g & 1], *next = ring[~g & 1];
    if (g + (Panel::kReadsAhead ? 2 : 1) < groups) {
      MultiplyGroup<kBlocks, true>(&panel, now, next, tile, x_block, x.width);
    } else {
      if (g + 1 < groups) DecodeGroup(&panel, true, next);
      MultiplyGroup<kBlocks, false>(&panel, now, next, tile, x_block, x.width);
    }
  }
  StoreSums<kBlocks>(sums);
  return panel.Sound();
}

// bf16 rows are tiles as they lie in memory: 32 of them, times up to 16 rows of x. Prefetching goes
// 128 bytes ahead in each row and no further (asking for the next rows too halves the speed).
// Bound: weight bytes; 89 to 92 % of the read stream at 1 row, 88 to 90 at 6.
static void StreamBf16(const uint8_t* rows, int64_t stride, const Inputs& x, TileSums* sums) {
  const uint16_t* tile = x.tiles;
  ZeroSums<1>();
  for (int64_t s = 0; s < x.steps; ++s, rows += 64, tile += kTileColumns * x.width) {
    _tile_loadd(6, tile, x.width * 4);
    const char* ahead = reinterpret_cast<const char*>(rows) + 128;
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r, ahead += stride) _mm_prefetch(ahead, _MM_HINT_T0);
    _tile_loadd(4, rows, stride);
    _tile_dpbf16ps(0, 4, 6);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r, ahead += stride) _mm_prefetch(ahead, _MM_HINT_T0);
    _tile_loadd(5, rows + 16 * stride, stride);
    _tile_dpbf16ps(1, 5, 6);
  }
  StoreSums<1>(sums);
}

// ---- many rows: decode a section, multiply all rows with it ----

// Adds `steps` tiles of 32 columns to the sums of 16 rows of x.
static inline void MultiplyOne(const uint16_t* w, const uint16_t* x, int64_t steps, int64_t width,
                               TileSums* c) {
  _tile_loadd(0, c[0][0], 64);
  _tile_loadd(1, c[0][1], 64);
  for (int64_t s = 0; s < steps; ++s, w += 2 * kTileWords, x += width * kTileColumns) {
    _tile_loadd(6, x, width * 4);
    _tile_loadd(4, w, 64);
    _tile_loadd(5, w + kTileWords, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
  }
  _tile_stored(0, c[0][0], 64);
  _tile_stored(1, c[0][1], 64);
}

// The same for 32 rows of x, whose tiles are 16 rows wide and lie x_block words apart.
static inline void MultiplyTwo(const uint16_t* w, const uint16_t* x, int64_t x_block, int64_t steps,
                               TileSums* c) {
  _tile_loadd(0, c[0][0], 64);
  _tile_loadd(1, c[0][1], 64);
  _tile_loadd(2, c[1][0], 64);
  _tile_loadd(3, c[1][1], 64);
  for (int64_t s = 0; s < steps; ++s, w += 2 * kTileWords, x += kTileWords) {
    _tile_loadd(6, x, 64);
    _tile_loadd(4, w, 64);
    _tile_loadd(7, x + x_block, 64);
    _tile_loadd(5, w + kTileWords, 64);
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

// All rows of x with `steps` tiles of decoded weights.
static inline void MultiplySection(const uint16_t* w, const Inputs& x, int64_t first_step,
                                   int64_t steps, TileSums* sums) {
  const int64_t x_block = x.steps * kTileColumns * x.width;
  int64_t b = 0;
  Fence();
  for (; 16 * (b + 1) < x.n; b += 2) {
    MultiplyTwo(w, x.Tile(b, first_step), x_block, steps, sums + b);
  }
  if (16 * b < x.n) MultiplyOne(w, x.Tile(b, first_step), steps, x.width, sums + b);
  Fence();
}

// decode(c, n, words) writes columns [c, c + n) of the panel. Bound: multiplies and decoding,
// which add up, and loading and storing sums between sections (a fifth of the time). At 128 rows
// fp8 reaches 31 to 45 % of a loop of multiplies from the second-level cache, 8192 columns (wo_b)
// 34 %, with 128 rows a block 20 %. Tried without success: sections of 512 columns
// and more, blocks of 256 rows, three blocks of x at a time in a section (no change to 7 % slower),
// starting from zeroed tiles instead of loaded zeros (no change), StreamPanel for more than 48 rows
// (fp8: 8 % faster at 80, 4 % slower at 512 rows).
template <class Decode>
static inline void BlockPanel(Decode decode, int64_t cols, const Inputs& x, TileSums* sums) {
  alignas(64) uint16_t words[kSectionGroups * kGroupWords];
  const int64_t blocks = (x.n + 15) / 16;
  memset(sums, 0, static_cast<size_t>(blocks) * sizeof(TileSums));
  for (int64_t k = 0, stop; k < cols; k = stop) {
    stop = Smaller(k + kSection, cols);
    for (int64_t c = k; c < stop; c += kGroup) {
      decode(c, Smaller(kGroup, stop - c), words + (c - k) / kGroup * kGroupWords);
    }
    MultiplySection(words, x, k / kTileColumns, (stop - k + kTileColumns - 1) / kTileColumns, sums);
  }
}

// ---- panels ----

// All rows of x, up to 48 at a time: the panel is decoded again for each of these slices. False
// if it needs the general decoder.
template <class Panel>
static inline bool StreamSlices(Panel panel, const Inputs& x, TileSums* sums) {
  const int64_t blocks = (x.n + 15) / 16;
  bool sound = true;
  Inputs slice = x;
  for (int64_t b = 0, n; b < blocks; b += n) {
    n = blocks - b == 4 ? 2 : Smaller(3, blocks - b);  // a slice of one block wastes tiles
    slice.tiles = x.Tile(b, 0);
    sound &= n == 1   ? StreamPanel<1>(panel, slice, sums + b)
             : n == 2 ? StreamPanel<2>(panel, slice, sums + b)
                      : StreamPanel<3>(panel, slice, sums + b);
  }
  return sound;
}

// fp8 weights are decoded once for more rows than this. fp4 weights never: decoded again for every
// slice they reach 1.1 to 1.2 times the speed at 64 to 512 rows.
constexpr int64_t kStreamedFp8Rows = 48;

// False if the panel needs the general decoder: then the sums mean nothing.
static bool TryFastPanel(const WeightView& w, WeightDecode decode, int64_t row, const Inputs& x,
                         TileSums* sums) {
  if (w.dtype == DType::kBf16) {
    if (x.n > 16 || w.cols % kTileColumns != 0) return false;
    StreamBf16(w.data + row * w.row_stride_bytes, w.row_stride_bytes, x, sums);
    return true;
  }
  const bool known = x.next != nullptr && x.next->dtype == w.dtype;
  const WeightView& next = known ? *x.next : w;
  const int64_t next_row = known ? x.next_row : row + kPanel;
  if (x.order == Order::kFp4) {
    Fp4Panel panel;
    return panel.Open(w, row, next, next_row) && StreamSlices(panel, x, sums);
  }
  if (x.order == Order::kFp8) {
    Fp8Panel panel;
    if (!panel.Open(w, decode, row, next, next_row)) return false;
    if (x.n <= kStreamedFp8Rows) return StreamSlices(panel, x, sums);
    const auto decode_group = [&](int64_t c, int64_t, uint16_t* out) {
      DecodeGroup(&panel, c + kGroup == w.cols, out);
    };
    BlockPanel(decode_group, w.cols, x, sums);
    return panel.Sound();
  }
  return false;
}

// y[m * y_stride + j]: the sums turned so that a row of x is a row of y.
static void StoreTurned(const TileSums* sums, int64_t n, float* y, int64_t y_stride) {
  if (n <= 2) {
    for (int j = 0; j < kPanel; ++j) {
      for (int64_t m = 0; m < n; ++m) y[m * y_stride + j] = sums[0][j / 16][j % 16][m];
    }
    return;
  }
  for (int64_t b = 0; 16 * b < n; ++b) {
    for (int g = 0; g < kPanel / 16; ++g) {
      IntVec rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) rows[i] = Bits(Load(sums[b][g][i]));
      Transpose(rows);
      alignas(64) float turned[16][16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) Store(turned[i], FromBits(rows[i]));
      for (int64_t m = 16 * b; m < Smaller(n, 16 * (b + 1)); ++m) {
        Store(y + m * y_stride + 16 * g, Load(turned[m - 16 * b]));
      }
    }
  }
}

// As DotPanel of matrix.inc.h. The weight is not kF32. x comes from Prepare for this tensor.
static void DotPanel(const WeightView& w, WeightDecode decode, int64_t row, int64_t n_out,
                     const Inputs& x, float* y, int64_t y_stride) {
  alignas(64) TileSums sums[kColumnTiles];
  if (n_out < kPanel || !TryFastPanel(w, decode, row, x, sums)) {
    const AnyPanel panel = {w, decode, row, n_out, x.order};
    BlockPanel([&panel](int64_t c, int64_t n, uint16_t* out) { panel.Decode(c, n, out); }, w.cols,
               x, sums);
  }
  StoreTurned(sums, x.n, y, y_stride);
}
