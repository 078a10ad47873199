// Embedding, norms, rotary embedding, hyper-connections and pooling. Included inside namespace
// deepinfer::cpu::<isa>. All of them are bound by memory. Threads share columns where a column does
// not need the rest of its row; products and sums round one by one like the reference, so those ops
// equal it bit for bit.

void Embed(const EmbedArgs& a, Work w) {
  const int64_t hidden = a.table.cols;
  const Span part = SplitWork(*a.n_rows * hidden, 64, w);
  for (int64_t i = part.begin; i < part.end;) {
    const RowPart p = PartAt(i, hidden, part);
    const uint8_t* from = a.table.data + a.ids[p.row] * a.table.row_stride_bytes;
    float* streams = a.streams + p.row * a.n_streams * hidden;
    for (int64_t d = p.begin; d < p.end; d += kLanes) {
      const Vec value = LoadBf16First(from + 2 * d, p.end - d);
      for (int64_t s = 0; s < a.n_streams; ++s) {
        StoreFirst(streams + s * hidden + d, value, p.end - d);
      }
    }
    if (p.begin == 0) {
      for (int64_t s = 0; s < a.n_streams; ++s) {
        a.pre[p.row * a.n_streams + s] = s == 0 ? 1.0f : 0.0f;
      }
    }
    i += p.end - p.begin;
  }
}

void RmsNorm(const RmsNormArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r) {
    const float* x = a.x + r * a.cols;
    float* y = a.y + r * a.cols;
    const Vec inverse = Set(InverseRms(x, a.cols, a.eps));
    for (int64_t d = 0; d < a.cols; d += kLanes) {
      const Vec weight = LoadBf16First(a.weight + 2 * d, a.cols - d);
      const Vec value = weight * (LoadFirst(x + d, a.cols - d) * inverse);
      StoreFirst(y + d, RoundIf(a.round, value), a.cols - d);
    }
  }
}

void Add(const AddArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.cols, 64, w);
  for (int64_t i = part.begin; i < part.end; i += kLanes) {
    const int64_t n = part.end - i;
    StoreFirst(a.y + i, RoundIf(a.round, LoadFirst(a.a + i, n) + LoadFirst(a.b + i, n)), n);
  }
}

void Rope(const RopeArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.heads, 1, w);
  const int64_t half = a.rope_dim / 2;
  // Even lanes get a cos - b sin, odd lanes b cos + a sin; the inverse swaps the signs of the sine
  // terms.
  const IntVec signs = a.inverse ? Xor(EvenSigns(), SetInt(INT32_MIN)) : EvenSigns();
  for (int64_t item = part.begin; item < part.end; ++item) {
    const int64_t r = item / a.heads;
    const int64_t table = (a.table_rows != nullptr ? a.table_rows[r] : r) * half;
    float* x = a.x + (item + 1) * a.head_dim - a.rope_dim;
    for (int64_t d = 0; d < a.rope_dim; d += kLanes) {
      const int64_t n = a.rope_dim - d;
      const Vec pairs = LoadFirst(x + d, n);
      const Vec cosines = LoadTwiceFirst(a.cos + table + d / 2, n);
      const Vec sines = LoadTwiceFirst(a.sin + table + d / 2, n);
      const Vec crossed = FromBits(Xor(Bits(SwapPairs(pairs) * sines), signs));
      StoreFirst(x + d, RoundIf(a.round, pairs * cosines + crossed), n);
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

// Softmax of every row, then column and row steps in turn (MixArgs). c [n, n] holds the logits.
static inline void Sinkhorn(float* c, int64_t n, int32_t iterations, float eps) {
  for (int64_t j = 0; j < n; ++j) {
    float top = c[j * n], sum = 0;
    for (int64_t k = 1; k < n; ++k) top = top < c[j * n + k] ? c[j * n + k] : top;
    for (int64_t k = 0; k < n; ++k) sum += c[j * n + k] = expf(c[j * n + k] - top);
    for (int64_t k = 0; k < n; ++k) c[j * n + k] = c[j * n + k] / sum + eps;
  }
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
  const Span part = SplitWork(int64_t{*a.n_rows} * a.hidden, 64, w);
  for (int64_t i = part.begin; i < part.end;) {
    const RowPart p = PartAt(i, a.hidden, part);
    const float* streams = a.streams + p.row * a.n_streams * a.hidden;
    const float* pre = a.pre + p.row * a.n_streams;
    float* y = a.y + p.row * a.hidden;
    for (int64_t d = p.begin; d < p.end; d += kLanes) {
      Vec sum = Zero();
      for (int64_t s = 0; s < a.n_streams; ++s) {
        sum = sum + Set(pre[s]) * LoadFirst(streams + s * a.hidden + d, p.end - d);
      }
      StoreFirst(y + d, RoundIf(a.round, sum), p.end - d);
    }
    i += p.end - p.begin;
  }
}

// Columns [begin, end) of one row; streams [n, hidden] in place, comb [n from, n to].
static inline void ExpandColumns(const float* out, const float* post, const float* comb, int64_t n,
                                 int64_t hidden, bool round, RowPart p, float* streams) {
  Vec old[8];  // n_streams is at most 8 (checked with the config)
  for (int64_t d = p.begin; d < p.end; d += kLanes) {
    const int64_t lanes = p.end - d;
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
  const Span part = SplitWork(int64_t{*a.n_rows} * a.hidden, 64, w);
  const int64_t n = a.n_streams;
  for (int64_t i = part.begin; i < part.end;) {
    const RowPart p = PartAt(i, a.hidden, part);
    ExpandColumns(a.out + p.row * a.hidden, a.post + p.row * n, a.comb + p.row * n * n, n, a.hidden,
                  a.round, p, a.streams + p.row * n * a.hidden);
    i += p.end - p.begin;
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
