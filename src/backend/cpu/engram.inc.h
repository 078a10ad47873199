// Engram rows and gate. Included inside namespace deepinfer::cpu::<isa>.

// Table rows lie anywhere: so many of them are asked for before the first is used.
constexpr int kGatherAhead = 24;

static inline void PrefetchTableRow(const EngramGatherArgs& a, int64_t i) {
  const int64_t row = a.row_ids[i];
  const uint8_t* codes = a.table.data + row * a.table.row_stride_bytes;
  for (int64_t d = 0; d < a.dim; d += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(codes + d), _MM_HINT_T0);
  }
  const uint8_t* scales = a.table.scale + row * a.table.scale_stride_bytes;
  _mm_prefetch(reinterpret_cast<const char*>(scales), _MM_HINT_T0);
}

void EngramGather(const EngramGatherArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.columns, 1, w);
  for (int64_t i = part.begin; i < Smaller(part.begin + kGatherAhead, part.end); ++i) {
    PrefetchTableRow(a, i);
  }
  for (int64_t i = part.begin; i < part.end; ++i) {
    if (i + kGatherAhead < part.end) PrefetchTableRow(a, i + kGatherAhead);
    const int64_t row = a.row_ids[i];
    const uint8_t* codes = a.table.data + row * a.table.row_stride_bytes;
    const uint8_t* scales = a.table.scale + row * a.table.scale_stride_bytes;
    float* y = a.y + i * a.dim;
    for (int64_t d = 0; d < a.dim; d += kLanes) {
      const Vec value = DecodeE4m3(codes + d) * Set(DecodeUe8m0(scales[d / 32]));
      Store(y + d, RoundIf(a.round, value));
    }
    for (int64_t b = 0; b < a.dim / 32; ++b) {
      if (scales[b] == 255) ReportFault(a.fault, Fault::kEngramScaleNan, a.layer, row);
    }
  }
}

// sum_d h[d] * (q_weight[d] * k_weight[d]) * key[d]
static inline float WeightedDot(const float* h, const float* key, const uint8_t* q_weight,
                                const uint8_t* k_weight, int64_t n) {
  Vec sum = Zero();
  for (int64_t d = 0; d < n; d += kLanes) {
    const Vec gain =
        LoadBf16First(q_weight + 2 * d, n - d) * LoadBf16First(k_weight + 2 * d, n - d);
    sum = Fma(LoadFirst(h + d, n - d) * gain, LoadFirst(key + d, n - d), sum);
  }
  return Sum(sum);
}

// One stream of one row per item.
void EngramGate(const EngramGateArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.n_streams, 1, w);
  const int64_t n = a.hidden;
  for (int64_t item = part.begin; item < part.end; ++item) {
    const int64_t r = item / a.n_streams, s = item % a.n_streams;
    a.gate[item] = 0;
    if (a.dead[r] != 0) continue;
    float* h = a.streams + item * n;
    const float* key = a.kv + (r * (a.n_streams + 1) + s) * n;
    const float* value = a.kv + (r * (a.n_streams + 1) + a.n_streams) * n;
    const float scale = InverseRms(h, n, a.eps) * InverseRms(key, n, a.eps);
    const float sum = WeightedDot(h, key, a.q_weight + 2 * s * n, a.k_weight + 2 * s * n, n);
    const float dot = sum * scale * (1.0f / sqrtf(static_cast<float>(n)));
    const float root = sqrtf(fabsf(dot) < 1e-6f ? 1e-6f : fabsf(dot));  // NaN stays NaN
    const float gate = 1.0f / (1.0f + expf(-copysignf(root, dot)));
    a.gate[item] = gate;
    for (int64_t d = 0; d < n; d += kLanes) {
      const Vec updated = LoadFirst(h + d, n - d) + Set(gate) * LoadFirst(value + d, n - d);
      StoreFirst(h + d, RoundIf(a.round, updated), n - d);
    }
  }
}
