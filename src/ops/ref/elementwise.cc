// Embedding, norms, rotary embedding and hyper-connections.
#include <algorithm>
#include <cmath>

#include "ops/ref/reference.h"

namespace deepinfer::ref {

namespace {

// 1 / sqrt(mean(x^2) + eps)
float InverseRms(const float* x, int64_t n, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return 1.0f / std::sqrt(static_cast<float>(sum / static_cast<double>(n)) + eps);
}

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace

void Embed(const EmbedArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  const int64_t hidden = a.table.cols;
  for (int64_t r = part.begin; r < part.end; ++r) {
    float* streams = a.streams + r * a.n_streams * hidden;
    DecodeWeightRow(a.table, a.ids[r], WeightDecode::kAsStored, streams);
    for (int64_t s = 1; s < a.n_streams; ++s) std::copy_n(streams, hidden, streams + s * hidden);
    for (int64_t s = 0; s < a.n_streams; ++s) a.pre[r * a.n_streams + s] = s == 0 ? 1.0f : 0.0f;
  }
}

void RmsNorm(const RmsNormArgs& a, Work w) {
  const Span part = SplitWork(*a.n_rows, 1, w);
  for (int64_t r = part.begin; r < part.end; ++r) {
    const float* x = a.x + r * a.cols;
    const float inverse = InverseRms(x, a.cols, a.eps);
    for (int64_t i = 0; i < a.cols; ++i) {
      a.y[r * a.cols + i] = RoundIf(a.round, LoadBf16(a.weight + 2 * i) * (x[i] * inverse));
    }
  }
}

void Add(const AddArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.cols, 64, w);
  for (int64_t i = part.begin; i < part.end; ++i) a.y[i] = RoundIf(a.round, a.a[i] + a.b[i]);
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

void Rope(const RopeArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.heads, 1, w);
  const int64_t half = a.rope_dim / 2;
  for (int64_t item = part.begin; item < part.end; ++item) {
    const int64_t r = item / a.heads;
    const int64_t t = a.table_rows != nullptr ? a.table_rows[r] : r;
    float* pair = a.x + (item + 1) * a.head_dim - a.rope_dim;
    for (int64_t i = 0; i < half; ++i, pair += 2) {
      const float c = a.cos[t * half + i];
      const float s = a.inverse ? -a.sin[t * half + i] : a.sin[t * half + i];
      const float even = pair[0], odd = pair[1];
      pair[0] = RoundIf(a.round, even * c - odd * s);
      pair[1] = RoundIf(a.round, even * s + odd * c);
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
  const Span part = SplitWork(int64_t{*a.n_rows} * a.hidden, 64, w);
  for (int64_t i = part.begin; i < part.end; ++i) {
    const int64_t r = i / a.hidden, d = i % a.hidden;
    const float* h = a.streams + r * a.n_streams * a.hidden + d;
    float sum = 0;
    for (int64_t s = 0; s < a.n_streams; ++s) sum += a.pre[r * a.n_streams + s] * h[s * a.hidden];
    a.y[i] = RoundIf(a.round, sum);
  }
}

void Expand(const ExpandArgs& a, Work w) {
  const Span part = SplitWork(int64_t{*a.n_rows} * a.hidden, 64, w);
  const int64_t n = a.n_streams;
  float old[8];  // n_streams is at most 8 (checked with the config)
  for (int64_t i = part.begin; i < part.end; ++i) {
    const int64_t r = i / a.hidden, d = i % a.hidden;
    float* h = a.streams + r * n * a.hidden + d;
    for (int64_t s = 0; s < n; ++s) old[s] = h[s * a.hidden];
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t s = 0; s < n; ++s) sum += a.comb[(r * n + s) * n + j] * old[s];
      h[j * a.hidden] = RoundIf(a.round, a.post[r * n + j] * a.out[i] + sum);
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
