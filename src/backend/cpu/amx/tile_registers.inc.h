// The tile registers, and what their operands are packed with. Included inside namespace
// deepinfer::cpu::amx, after vec.inc.h.

constexpr int kTileWords = 16 * 32;  // bf16 values of a tile

struct TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// Eight tiles of 16 rows: 4 and 5 of 64 bytes, for weights, the others of `width` 32-bit lanes, for
// sums and for x. They belong to the caller until ReleaseTiles().
static inline void ConfigureTiles(int64_t width = 16) {
  alignas(64) TileConfig config = {};
  config.palette = 1;
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = static_cast<uint16_t>(t == 4 || t == 5 ? 64 : 4 * width);
    config.rows[t] = 16;
  }
  asm volatile("" : : "r"(&config) : "memory");  // g++ 12 believes that the next line reads 8 bytes
  _tile_loadconfig(&config);
}

static inline void ReleaseTiles() { _tile_release(); }

// Tile loads of g++ 12 do not tell the compiler that they read memory, nor stores that they write:
// between them and other accesses stands this.
static inline void Fence() { asm volatile("" : : : "memory"); }

// out [32][16 * kTiles of out_cols] = 32 rows of 32 * n columns, row_stride words apart, times one
// or two tiles of 16 packed rows of x, n tiles each.
template <int kTiles>
static inline void ProductTiles(const uint16_t* rows, int64_t row_stride, const uint16_t* x,
                                int64_t n, float* out, int64_t out_cols) {
  const uint16_t *more_rows = rows + 16 * row_stride, *more_x = x + n * kTileWords;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < n; ++k) {
    _tile_loadd(4, rows + 32 * k, 2 * row_stride);
    _tile_loadd(6, x + k * kTileWords, 64);
    _tile_loadd(5, more_rows + 32 * k, 2 * row_stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if (kTiles == 1) continue;
    _tile_loadd(7, more_x + k * kTileWords, 64);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 4 * out_cols);
  _tile_stored(1, out + 16 * out_cols, 4 * out_cols);
  if (kTiles == 1) return;
  _tile_stored(2, out + 16, 4 * out_cols);
  _tile_stored(3, out + 16 * out_cols + 16, 4 * out_cols);
}

struct LaneIndex {
  int32_t lane[16];
};

// What two rows exchange when blocks of `distance` lanes are transposed: into the first row (upper
// false) or the second. Lanes of the second row count from 16.
static constexpr LaneIndex MakeExchange(int distance, bool upper) {
  LaneIndex index{};
  for (int l = 0; l < 16; ++l) {
    const bool second = (l & distance) != 0;
    index.lane[l] = upper ? (second ? 16 + l : l + distance) : (second ? 16 + l - distance : l);
  }
  return index;
}

alignas(64) static constexpr LaneIndex kExchange[4][2] = {
    {MakeExchange(1, false), MakeExchange(1, true)},
    {MakeExchange(2, false), MakeExchange(2, true)},
    {MakeExchange(4, false), MakeExchange(4, true)},
    {MakeExchange(8, false), MakeExchange(8, true)}};

// 16 x 16 lanes, rows become columns.
static inline void Transpose(IntVec (&rows)[16]) {
#pragma GCC unroll 4
  for (int stage = 0; stage < 4; ++stage) {
    const IntVec first = _mm512_load_si512(kExchange[stage][0].lane);
    const IntVec second = _mm512_load_si512(kExchange[stage][1].lane);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if ((i >> stage & 1) != 0) continue;
      const IntVec a = rows[i], b = rows[i | 1 << stage];
      rows[i] = _mm512_permutex2var_epi32(a, first, b);
      rows[i | 1 << stage] = _mm512_permutex2var_epi32(a, second, b);
    }
  }
}

// The first n of 32 floats on the bf16 grid as pairs of bf16, the others zero.
static inline IntVec LoadPairs(const float* p, int64_t n) {
  const IntVec low = ShiftRight<16>(Bits(LoadFirst(p, n)));
  const IntVec high = ShiftRight<16>(Bits(LoadFirst(p + 16, n > 16 ? n - 16 : 0)));
  const __m256i first = _mm512_cvtepi32_epi16(low), second = _mm512_cvtepi32_epi16(high);
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

// n rows of `cols` floats on the bf16 grid, cols a multiple of 32, as tiles [rows / 16][cols / 32]
// of [16 pairs of columns][16 rows][2]; rows that fill the last tile are zero.
static inline void PackTiles(const float* x, int64_t n, int64_t cols, uint16_t* tiles) {
  for (int64_t first = 0; first < n; first += 16) {
    for (int64_t c = 0; c < cols; c += 32, tiles += kTileWords) {
      IntVec rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        rows[i] = first + i < n ? LoadPairs(x + (first + i) * cols + c, 32) : SetInt(0);
      }
      Transpose(rows);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tiles + 32 * i, rows[i]);
    }
  }
}
