// Embedding, norms, rotary embedding and hyper-connections.
#include <algorithm>
#include <cmath>

#include "ops/ref/reference.h"

namespace deepinfer::ref {

float InverseRms(const float* x, int64_t n, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return 1.0f / std::sqrt(static_cast<float>(sum / static_cast<double>(n)) + eps);
}

namespace {

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace

void Embed(const EmbedArgs& a, Work w) {
  const int64_t hidden = a.table.cols;
  const Span part = SplitColumns(hidden, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    float* streams = a.streams + r * a.n_streams * hidden;
    const uint8_t* from = a.table.data + a.ids[r] * a.table.row_stride_bytes;
    for (int64_t s = 0; s < a.n_streams; ++s) {
      for (int64_t d = part.begin; d < part.end; ++d)
        streams[s * hidden + d] = LoadBf16(from + 2 * d);
      if (part.begin == 0) a.pre[r * a.n_streams + s] = s == 0 ? 1.0f : 0.0f;
    }
  }
}

void RmsNorm(const RmsNormArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.cols, 32, w);
  float inverse = 0;
  for (int64_t i = part.begin; i < part.end; ++i) {
    const int64_t c = i % a.cols;
    if (i == part.begin || c == 0) inverse = InverseRms(a.x + i - c, a.cols, a.eps);
    a.y[i] = RoundIf(a.round, LoadBf16(a.weight + 2 * c) * (a.x[i] * inverse));
  }
  if (a.quantised == nullptr) return;
  for (int64_t i = part.begin; i < part.end; i += 32) {
    uint8_t packed[33];
    EncodeRow(RowFormat::kFp8Block32, a.y + i, 32, a.fp8_max, packed);
    DecodeRow(RowFormat::kFp8Block32, packed, 32, a.quantised + i);
  }
}

void Add(const AddArgs& a, Work w) {
  const Span part = SplitColumns(a.cols, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t i = r * a.cols + part.begin; i < r * a.cols + part.end; ++i)
      a.y[i] = RoundIf(a.round, a.a[i] + a.b[i]);
  }
}

void RopeTable(const RopeTableArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r) {
    const float position = static_cast<float>(std::max(0, a.positions[r] + a.offset));
    for (int64_t i = 0; i < a.half; ++i) {
      const float angle = position * a.freq[i];
      a.cos[r * a.half + i] = std::cos(angle);
      a.sin[r * a.half + i] = std::sin(angle);
    }
  }
}

void RotateHead(const RowRotation& rope, int64_t row, bool inverse, bool round, int64_t head_dim,
                int64_t begin, int64_t end, float* x) {
  const int64_t plain = head_dim - rope.dim;
  const int64_t t = rope.table_rows != nullptr ? rope.table_rows[row] : row;
  const float* cos = rope.cos + t * rope.dim / 2;
  const float* sin = rope.sin + t * rope.dim / 2;
  for (int64_t d = std::max(begin, plain); d < end; d += 2) {
    const float c = cos[(d - plain) / 2],
                s = inverse ? -sin[(d - plain) / 2] : sin[(d - plain) / 2];
    float* pair = x + (d - begin);
    const float even = pair[0], odd = pair[1];
    pair[0] = RoundIf(round, even * c - odd * s);
    pair[1] = RoundIf(round, even * s + odd * c);
  }
}

void Rope(const RopeArgs& a, Work w) {
  const Span part = SplitColumns(int64_t{a.heads} * a.head_dim, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    for (int64_t c = part.begin, end; c < part.end; c = end) {
      const int64_t head = c / a.head_dim, begin = head * a.head_dim;
      end = std::min(part.end, begin + a.head_dim);
      RotateHead(a.rope, r, a.inverse, a.round, a.head_dim, c - begin, end - begin,
                 a.x + r * a.heads * a.head_dim + c);
    }
  }
}

namespace {

void NormalizeRows(float* c, int n, float eps) {
  for (int j = 0; j < n; ++j) {
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += c[j * n + k];
    for (int k = 0; k < n; ++k) c[j * n + k] /= sum + eps;
  }
}

void NormalizeColumns(float* c, int n, float eps) {
  for (int k = 0; k < n; ++k) {
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += c[j * n + k];
    for (int j = 0; j < n; ++j) c[j * n + k] /= sum + eps;
  }
}

// c holds the logits; see MixArgs.
void Sinkhorn(float* c, int n, int iterations, float eps) {
  for (int j = 0; j < n; ++j) {
    const float top = *std::max_element(c + j * n, c + (j + 1) * n);
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += c[j * n + k] = std::exp(c[j * n + k] - top);
    for (int k = 0; k < n; ++k) c[j * n + k] = c[j * n + k] / sum + eps;
  }
  NormalizeColumns(c, n, eps);
  for (int i = 1; i < iterations; ++i) {
    NormalizeRows(c, n, eps);
    NormalizeColumns(c, n, eps);
  }
}

}  // namespace

void Mix(const MixArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  const int n = a.n_streams;
  for (int64_t r = part.begin; r < part.end; ++r) {
    const float inverse =
        InverseRms(a.streams + r * n * a.hidden, int64_t{n} * a.hidden, a.rms_eps);
    const float* raw = a.raw + r * (2 + n) * n;
    const auto affine = [&](int i, int part_index) {
      return raw[i] * inverse * LoadF32(a.scale + 4 * part_index) + LoadF32(a.base + 4 * i);
    };
    for (int k = 0; k < n; ++k) a.pre[r * n + k] = Sigmoid(affine(k, 0)) + a.hc_eps;
    for (int k = 0; k < n; ++k) a.post[r * n + k] = 2 * Sigmoid(affine(n + k, 1));
    float* comb = a.comb + r * n * n;
    for (int i = 0; i < n * n; ++i) comb[i] = affine(2 * n + i, 2);
    Sinkhorn(comb, n, a.iterations, a.hc_eps);
  }
}

void Collapse(const CollapseArgs& a, Work w) {
  const Span part = SplitColumns(a.hidden, w);
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    const float* h = a.streams + r * a.n_streams * a.hidden;
    for (int64_t d = part.begin; d < part.end; ++d) {
      float sum = 0;
      for (int64_t s = 0; s < a.n_streams; ++s)
        sum += a.pre[r * a.n_streams + s] * h[s * a.hidden + d];
      a.y[r * a.hidden + d] = RoundIf(a.round, sum);
    }
  }
}

void Expand(const ExpandArgs& a, Work w) {
  const Span part = SplitColumns(a.hidden, w);
  const int64_t n = a.n_streams;
  float old[8];  // n_streams is at most 8 (checked with the config)
  for (int64_t r = 0; r < *a.n_rows; ++r) {
    float* h = a.streams + r * n * a.hidden;
    for (int64_t d = part.begin; d < part.end; ++d) {
      for (int64_t s = 0; s < n; ++s) old[s] = h[s * a.hidden + d];
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t s = 0; s < n; ++s) sum += a.comb[(r * n + s) * n + j] * old[s];
        h[j * a.hidden + d] = RoundIf(a.round, a.post[r * n + j] * a.out[r * a.hidden + d] + sum);
      }
    }
  }
}

void EngramGate(const EngramGateArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.n_streams, 1, w);
  const int64_t d_count = a.hidden;
  for (int64_t item = part.begin; item < part.end; ++item) {
    const int64_t r = item / a.n_streams, s = item % a.n_streams;
    a.gate[item] = 0;
    if (a.dead[r]) continue;
    float* h = a.streams + item * d_count;
    const float* key = a.kv + (r * (a.n_streams + 1) + s) * d_count;
    const float* value = a.kv + (r * (a.n_streams + 1) + a.n_streams) * d_count;
    const float scale = InverseRms(h, d_count, a.eps) * InverseRms(key, d_count, a.eps);
    double sum = 0;
    for (int64_t d = 0; d < d_count; ++d) {
      const float gain = LoadBf16(a.q_weight + 2 * (s * d_count + d)) *
                         LoadBf16(a.k_weight + 2 * (s * d_count + d));
      sum += double{h[d] * gain * key[d]};
    }
    const float dot =
        static_cast<float>(sum) * scale * (1.0f / std::sqrt(static_cast<float>(d_count)));
    const float gate = Sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot));
    a.gate[item] = gate;
    for (int64_t d = 0; d < d_count; ++d) h[d] = RoundIf(a.round, h[d] + gate * value[d]);
  }
}

void EngramGather(const EngramGatherArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.columns, 1, w);
  for (int64_t i = part.begin; i < part.end; ++i) {
    const int64_t row = a.row_ids[i];
    float* y = a.y + i * a.dim;
    DecodeWeightRow(a.table, row, WeightDecode::kAsStored, y);
    for (int64_t d = 0; d < a.dim; ++d) y[d] = RoundIf(a.round, y[d]);
    const uint8_t* scale = a.table.scale + row * a.table.scale_stride_bytes;
    if (std::find(scale, scale + a.dim / 32, uint8_t{255}) != scale + a.dim / 32) {
      ReportFault(a.fault, Fault::kEngramScaleNan, a.layer, row);
    }
  }
}

}  // namespace deepinfer::ref
