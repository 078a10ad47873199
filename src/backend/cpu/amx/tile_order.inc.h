// Rows of x as tiles. Included inside namespace deepinfer::cpu::amx, after tile_registers.inc.h.
//
// Weights are decoded straight from the order of their bytes; what that does to the columns is done
// to the rows of x too, once, here. Products of columns are then added in the order of the tiles.

constexpr int kTileColumns = 32;  // columns of one tile of weights
constexpr int kGroup = 128;       // columns that are reordered among themselves
constexpr int kGroupTiles = kGroup / kTileColumns;
constexpr int kBlockRows = 128;  // rows of x that share decoded weights
// As many as leave room for weights and sums in a second-level cache of 2 MiB; wide weights (wo_b)
// lose more by rows that do not than by being decoded twice.
static inline int64_t BlockRows(int64_t cols) { return cols > 6144 ? 64 : kBlockRows; }

// Which columns of a group of 128 the words 0 ... 31 of its four tiles hold.
enum class Order : uint8_t {
  kColumns,  // tile t, word i: 32t + i
  kFp8,      // tiles 0 and 1: bytes 0 ... 7 and 8 ... 15 of the four 16 bytes of columns 0 ... 63;
             // tiles 2 and 3: of columns 64 ... 127
  kFp4,      // tile t, word i: 4i + t, the t-th four bits of every 16
};

// Products with `w` use this order. It depends on the tensor alone, so all rows are summed alike.
static inline Order OrderOf(const WeightView& w) {
  if (w.dtype == DType::kBf16 || w.cols % kGroup != 0) return Order::kColumns;
  return w.dtype == DType::kFp4Row32 ? Order::kFp4 : Order::kFp8;
}

// 128 columns as bf16, 32 a vector, into the order of tiles.
static inline void Reorder(Order order, IntVec (&v)[kGroupTiles]) {
  if (order == Order::kColumns) return;
  if (order == Order::kFp8) {
    for (int h = 0; h < kGroupTiles; h += 2) {
      const IntVec a = v[h], b = v[h + 1];
      v[h] = _mm512_shuffle_i32x4(a, b, 0x88);
      v[h + 1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    }
    return;
  }
  // Every fourth word into the same 128 bits, then these as a 4 x 4 matrix turned.
  const IntVec every_fourth =
      _mm512_set_epi16(31, 27, 23, 19, 15, 11, 7, 3, 30, 26, 22, 18, 14, 10, 6, 2, 29, 25, 21, 17,
                       13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
  for (IntVec& part : v) part = _mm512_permutexvar_epi16(every_fourth, part);
  const IntVec a = _mm512_shuffle_i32x4(v[0], v[1], 0x44);
  const IntVec b = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
  const IntVec c = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
  const IntVec d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
  v[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  v[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
  v[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  v[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

// Rows of x as tiles: of every 16 rows, of every 32 columns, [16 pairs of columns][width rows][2].
// Rows and columns that do not exist are zero. Fewer rows make narrower tiles, so that those of one
// row stay in the first-level cache.
struct Inputs {
  const uint16_t* tiles;
  int64_t n;      // rows
  int64_t steps;  // tiles of 32 columns
  int64_t width;  // rows of a tile: 1, 2, 4, 8 or 16
  Order order;
  const WeightView* next;  // the panel that follows, null: unknown
  int64_t next_row;

  const uint16_t* Tile(int64_t block, int64_t step) const {
    return tiles + (block * steps + step) * kTileColumns * width;
  }
};

// rows[i]: 16 pairs of columns of row i.
static inline void StoreTile(IntVec (&rows)[16], int64_t width, uint16_t* tile) {
  if (width == 1) return _mm512_storeu_si512(tile, rows[0]);
  if (width == 2) {
    const IntVec low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const IntVec high = AddInt(low, SetInt(8));
    _mm512_storeu_si512(tile, _mm512_permutex2var_epi32(rows[0], low, rows[1]));
    _mm512_storeu_si512(tile + 32, _mm512_permutex2var_epi32(rows[0], high, rows[1]));
    return;
  }
  IntVec turned[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) turned[i] = rows[i];
  Transpose(turned);
  const Mask mask = FirstLanes(width);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    _mm512_mask_storeu_epi32(tile + 2 * i * width, mask, turned[i]);
  }
}

// Rows of x for DotPanel with `w`. scratch: LinearScratchFloats(w.cols).
static Inputs Prepare(const WeightView& w, const float* const* x, int64_t n, float* scratch) {
  uint16_t* tiles = reinterpret_cast<uint16_t*>(scratch);
  const Order order = OrderOf(w);
  const int64_t width = n <= 2 ? n : n <= 4 ? 4 : n <= 8 ? 8 : 16;
  uint16_t* tile = tiles;
  for (int64_t first = 0; first < n; first += 16) {
    alignas(64) IntVec rows[kGroupTiles][16] = {};
    for (int64_t c = 0; c < w.cols; c += kGroup) {
      for (int64_t i = 0; i < Smaller(16, n - first); ++i) {
        IntVec group[kGroupTiles];
        for (int t = 0; t < kGroupTiles; ++t) {
          const int64_t column = c + t * kTileColumns;
          group[t] =
              column < w.cols ? LoadPairs(x[first + i] + column, w.cols - column) : SetInt(0);
        }
        Reorder(order, group);
        for (int t = 0; t < kGroupTiles; ++t) rows[t][i] = group[t];
      }
      for (int t = 0; t < kGroupTiles && c + t * kTileColumns < w.cols; ++t) {
        StoreTile(rows[t], width, tile);
        tile += kTileColumns * width;
      }
    }
  }
  ConfigureTiles(width);
  return {tiles, n, (w.cols + kTileColumns - 1) / kTileColumns, width, order, nullptr, 0};
}

// Says which panel comes after the one that is multiplied next.
static inline void ComesNext(Inputs* x, const WeightView& w, int64_t row) {
  x->next = &w, x->next_row = row;
}
