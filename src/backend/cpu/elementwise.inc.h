// Embedding, norms, rotary embedding, hyper-connections and pooling. Included inside namespace
// deepinfer::cpu::<isa>, after norm_rope.inc.h. All of them are bound by memory. Threads share
// columns where a column does not need the rest of its row; products and sums round one by one like
// the reference, so those ops equal it bit for bit.

void Embed(const EmbedArgs& a, Work w) {
  const int64_t hidden = a.table.cols;
  const Span part = SplitColumns(hidden, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    const uint8_t* from = a.table.data + a.ids[r] * a.table.row_stride_bytes;
    float* streams = a.streams + r * a.n_streams * hidden;
    for (int64_t d = part.begin; d < part.end; d += kLanes) {
      const Vec value = LoadBf16First(from + 2 * d, part.end - d);
      for (int64_t s = 0; s < a.n_streams; ++s) {
        StoreFirst(streams + s * hidden + d, value, part.end - d);
      }
    }
    if (part.begin != 0) continue;
    for (int64_t s = 0; s < a.n_streams; ++s) {
      a.pre[r * a.n_streams + s] = s == 0 ? 1.0f : 0.0f;
    }
  }
}

// Every thread that has columns of a row reads the whole row for its norm: that takes less than a
// barrier.
void RmsNorm(const RmsNormArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.cols, 32, w);
  for (int64_t i = part.begin; i < part.end;) {
    const RowPart p = PartAt(i, a.cols, part);
    const float* x = a.x + p.row * a.cols;
    float* y = a.y + p.row * a.cols;
    NormColumns(x, a.weight, InverseRms(x, a.cols, a.eps), a.round, p.begin, p.end, y + p.begin);
    for (int64_t c = p.begin; a.quantised != nullptr && c < p.end; c += 32) {
      QuantiseInto(RowFormat::kFp8Block32, y + c, a.fp8_max, a.quantised + p.row * a.cols + c);
    }
    i += p.end - p.begin;
  }
}

void Add(const AddArgs& a, Work w) {
  const Span part = SplitColumns(a.cols, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    const int64_t row = r * a.cols;
    for (int64_t d = part.begin; d < part.end; d += kLanes) {
      const int64_t n = part.end - d, i = row + d;
      StoreFirst(a.y + i, RoundIf(a.round, LoadFirst(a.a + i, n) + LoadFirst(a.b + i, n)), n);
    }
  }
}

void Rope(const RopeArgs& a, Work w) {
  const int64_t cols = int64_t{a.heads} * a.head_dim;
  const Span part = SplitColumns(cols, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t c = part.begin, end; c < part.end; c = end) {
      const int64_t head = c / a.head_dim * a.head_dim;
      end = Smaller(part.end, head + a.head_dim);
      RotateColumns(a.rope, r, a.inverse, a.round, a.head_dim, c - head, end - head,
                    a.x + r * cols + c);
    }
  }
}

static inline float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static inline void NormalizeRows(float* c, int64_t n, float eps) {
  for (int64_t j = 0; j < n; ++j) {
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) sum += c[j * n + k];
    for (int64_t k = 0; k < n; ++k) c[j * n + k] /= sum + eps;
  }
}

static inline void NormalizeColumns(float* c, int64_t n, float eps) {
  for (int64_t k = 0; k < n; ++k) {
    float sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += c[j * n + k];
    for (int64_t j = 0; j < n; ++j) c[j * n + k] /= sum + eps;
  }
}

// Four rows of four values, as the steps over rows and columns want them.
struct Square4 {
  __m128 row[4];
};

static inline Square4 Transposed(Square4 c) {
  const __m128 a = _mm_unpacklo_ps(c.row[0], c.row[1]), b = _mm_unpackhi_ps(c.row[0], c.row[1]);
  const __m128 d = _mm_unpacklo_ps(c.row[2], c.row[3]), e = _mm_unpackhi_ps(c.row[2], c.row[3]);
  return {{_mm_movelh_ps(a, d), _mm_movehl_ps(d, a), _mm_movelh_ps(b, e), _mm_movehl_ps(e, b)}};
}

// Each column divided by (its sum, rows ascending, + eps).
static inline Square4 NormalizedColumns(Square4 c, __m128 eps) {
  const __m128 sum =
      _mm_add_ps(_mm_add_ps(_mm_add_ps(c.row[0], c.row[1]), c.row[2]), c.row[3]) + eps;
  return {{c.row[0] / sum, c.row[1] / sum, c.row[2] / sum, c.row[3] / sum}};
}

// Four streams: the steps of NormalizeRows and NormalizeColumns in registers, the same bits.
static inline void Normalize4(float* c, int32_t iterations, float eps) {
  const __m128 e = _mm_set1_ps(eps);
  Square4 m = {{_mm_loadu_ps(c), _mm_loadu_ps(c + 4), _mm_loadu_ps(c + 8), _mm_loadu_ps(c + 12)}};
  m = NormalizedColumns(m, e);
  for (int32_t i = 1; i < iterations; ++i) {
    m = NormalizedColumns(Transposed(m), e);
    m = NormalizedColumns(Transposed(m), e);
  }
  for (int j = 0; j < 4; ++j) _mm_storeu_ps(c + 4 * j, m.row[j]);
}

// Softmax of every row, then column and row steps in turn (MixArgs). c [n, n] holds the logits.
static inline void Sinkhorn(float* c, int64_t n, int32_t iterations, float eps) {
  for (int64_t j = 0; j < n; ++j) {
    float top = c[j * n], sum = 0;
    for (int64_t k = 1; k < n; ++k) top = top < c[j * n + k] ? c[j * n + k] : top;
    for (int64_t k = 0; k < n; ++k) sum += c[j * n + k] = expf(c[j * n + k] - top);
    for (int64_t k = 0; k < n; ++k) c[j * n + k] = c[j * n + k] / sum + eps;
  }
  if (n == 4) return Normalize4(c, iterations, eps);
  NormalizeColumns(c, n, eps);
  for (int32_t i = 1; i < iterations; ++i) {
    NormalizeRows(c, n, eps);
    NormalizeColumns(c, n, eps);
  }
}

// Only the sum of squares is long; the 24 mixes of a row are scalar.
void Mix(const MixArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  const int64_t n = a.n_streams;
  for (int64_t r = part.begin; r < part.end; ++r) {
    const float inverse = InverseRms(a.streams + r * n * a.hidden, n * a.hidden, a.rms_eps);
    const float* raw = a.raw + r * (2 + n) * n;
    float* comb = a.comb + r * n * n;
    const float pre_scale = LoadF32(a.scale), post_scale = LoadF32(a.scale + 4);
    const float comb_scale = LoadF32(a.scale + 8);
    for (int64_t k = 0; k < n; ++k) {
      const float pre = raw[k] * inverse * pre_scale + LoadF32(a.base + 4 * k);
      const float post = raw[n + k] * inverse * post_scale + LoadF32(a.base + 4 * (n + k));
      a.pre[r * n + k] = Sigmoid(pre) + a.hc_eps;
      a.post[r * n + k] = 2 * Sigmoid(post);
    }
    for (int64_t i = 0; i < n * n; ++i) {
      comb[i] = raw[2 * n + i] * inverse * comb_scale + LoadF32(a.base + 4 * (2 * n + i));
    }
    Sinkhorn(comb, n, a.iterations, a.hc_eps);
  }
}

void Collapse(const CollapseArgs& a, Work w) {
  const Span part = SplitColumns(a.hidden, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    const float* streams = a.streams + r * a.n_streams * a.hidden;
    const float* pre = a.pre + r * a.n_streams;
    for (int64_t d = part.begin; d < part.end; d += kLanes) {
      Vec sum = Zero();
      for (int64_t s = 0; s < a.n_streams; ++s) {
        sum = sum + Set(pre[s]) * LoadFirst(streams + s * a.hidden + d, part.end - d);
      }
      StoreFirst(a.y + r * a.hidden + d, RoundIf(a.round, sum), part.end - d);
    }
  }
}

// Columns of one row; streams [n, hidden] in place, comb [n from, n to].
static inline void ExpandColumns(const float* out, const float* post, const float* comb, int64_t n,
                                 int64_t hidden, bool round, Span columns, float* streams) {
  Vec old[8];  // n_streams is at most 8 (checked with the config)
  for (int64_t d = columns.begin; d < columns.end; d += kLanes) {
    const int64_t lanes = columns.end - d;
    const Vec o = LoadFirst(out + d, lanes);
    for (int64_t s = 0; s < n; ++s) old[s] = LoadFirst(streams + s * hidden + d, lanes);
    for (int64_t j = 0; j < n; ++j) {
      Vec sum = Zero();
      for (int64_t s = 0; s < n; ++s) sum = sum + Set(comb[s * n + j]) * old[s];
      StoreFirst(streams + j * hidden + d, RoundIf(round, Set(post[j]) * o + sum), lanes);
    }
  }
}

void Expand(const ExpandArgs& a, Work w) {
  const Span part = SplitColumns(a.hidden, w);
  const int64_t n = a.n_streams;
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    ExpandColumns(a.out + r * a.hidden, a.post + r * n, a.comb + r * n * n, n, a.hidden, a.round,
                  part, a.streams + r * n * a.hidden);
  }
}

void Pool(const PoolArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_groups} * a.cols, 64, w);
  for (int64_t i = part.begin; i < part.end;) {
    const RowPart p = PartAt(i, a.cols, part);
    const int32_t row = a.group_rows[p.row], position = a.positions[row];
    const int64_t ring = int64_t{a.row_slots[row]} * a.ring;
    const int64_t first = (ring + (position - 1) % a.ring) * a.cols;
    const int64_t second = (ring + position % a.ring) * a.cols;
    float* y = a.y + p.row * a.cols;
    for (int64_t d = p.begin; d < p.end; d += kLanes) {
      const int64_t n = p.end - d;
      const Vec s0 = LoadFirst(a.score + first + d, n), s1 = LoadFirst(a.score + second + d, n);
      const Vec top = Max(s0, s1), e0 = Exp(s0 - top), e1 = Exp(s1 - top), sum = e0 + e1;
      const Vec kv0 = LoadFirst(a.kv + first + d, n), kv1 = LoadFirst(a.kv + second + d, n);
      StoreFirst(y + d, RoundIf(a.round, e0 / sum * kv0 + e1 / sum * kv1), n);
    }
    i += p.end - p.begin;
  }
}
