// Ops without weights: their data stays in the caches between phases of a step.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "bench/case_parts.h"

namespace deepinfer {
namespace {

// Runs per sample, so that a sample is long against the clock.
constexpr int64_t kSampleBytes = 4 << 20;

std::string Wide(const Shapes& s) { return fmt::format("[rows, {}]", s.hidden); }
std::string Streams(const Shapes& s) {
  return fmt::format("[rows, {}, {}]", int{s.kStreams}, s.hidden);
}

KernelCase RmsNormCase(const Shapes& shapes, const KernelTable& k, int rows, int) {
  const int64_t n = int64_t{rows} * shapes.hidden;
  const auto s = MakeCaseState(rows, 2 * n + shapes.hidden);
  float *x = s->buffers.Take(n), *y = s->buffers.Take(n), *weight = s->buffers.Take(shapes.hidden);
  FillActivations(k, Grid::kBf16, rows, shapes.hidden, x);
  FillWeights(DType::kBf16, 1, reinterpret_cast<uint8_t*>(weight), 2 * shapes.hidden);
  const RmsNormArgs a = {.n_rows = &s->n_rows,
                         .x = x,
                         .weight = reinterpret_cast<const uint8_t*>(weight),
                         .y = y,
                         .cols = shapes.hidden,
                         .eps = kEps,
                         .round = true};
  return CachedCase(x, 4 * 2 * n, [s, a, kernel = k.rms_norm](Work w) { kernel(a, w); });
}

KernelCase QuantRowsCase(const Shapes& shapes, const KernelTable& k, int rows, int) {
  const int64_t n = int64_t{rows} * shapes.hidden;
  const auto s = MakeCaseState(rows, 2 * n);
  float *x = s->buffers.Take(n), *y = s->buffers.Take(n);
  FillActivations(k, Grid::kBf16, rows, shapes.hidden, x);
  const QuantRowsArgs a = {.n_rows = &s->n_rows,
                           .x = x,
                           .y = y,
                           .cols = shapes.hidden,
                           .format = RowFormat::kFp8Block32,
                           .fp8_max = 448};
  return CachedCase(x, 4 * 2 * n, [s, a, kernel = k.quant_rows](Work w) { kernel(a, w); });
}

KernelCase AddCase(const Shapes& shapes, const KernelTable& k, int rows, int) {
  const int64_t n = int64_t{rows} * shapes.hidden;
  const auto s = MakeCaseState(rows, 3 * n);
  float *a = s->buffers.Take(n), *b = s->buffers.Take(n), *y = s->buffers.Take(n);
  FillActivations(k, Grid::kBf16, rows, shapes.hidden, a);
  FillActivations(k, Grid::kBf16, rows, shapes.hidden, b);
  const AddArgs args = {
      .n_rows = &s->n_rows, .a = a, .b = b, .y = y, .cols = shapes.hidden, .round = true};
  return CachedCase(a, 4 * 3 * n, [s, args, kernel = k.add](Work w) { kernel(args, w); });
}

// What the three hyper-connection ops read and write, in this order.
struct Mixing {
  std::shared_ptr<CaseState> s;
  float *streams, *out, *raw, *pre, *post, *comb;
  uint8_t *base, *scale;

  Mixing(const Shapes& shapes, const KernelTable& k, int rows) {
    constexpr int32_t kMixes = (2 + Shapes::kStreams) * Shapes::kStreams;
    const int64_t r = rows;
    s = MakeCaseState(rows, r * (shapes.kStreams + 1) * shapes.hidden +
                                3 * CaseBuffers::RoundUp(r * kMixes) +
                                CaseBuffers::RoundUp(kMixes) + CaseBuffers::RoundUp(3) +
                                CaseBuffers::RoundUp(r * kMixes));
    streams = s->buffers.Take(r * shapes.kStreams * shapes.hidden);
    out = s->buffers.Take(r * shapes.hidden);
    raw = s->buffers.Take(r * kMixes);
    pre = s->buffers.Take(r * shapes.kStreams);
    post = s->buffers.Take(r * shapes.kStreams);
    comb = s->buffers.Take(r * shapes.kStreams * shapes.kStreams);
    base = reinterpret_cast<uint8_t*>(s->buffers.Take(kMixes));
    scale = reinterpret_cast<uint8_t*>(s->buffers.Take(3));
    FillActivations(k, Grid::kBf16, rows, shapes.kStreams * shapes.hidden, streams);
    FillActivations(k, Grid::kBf16, rows, shapes.hidden, out);
    FillWeights(DType::kF32, 2, reinterpret_cast<uint8_t*>(raw), 4 * r * kMixes);
    FillWeights(DType::kF32, 3, base, 4 * kMixes);
    FillWeights(DType::kF32, 4, scale, 4 * 3);
    std::fill_n(pre, r * shapes.kStreams, 0.5f);
    std::fill_n(post, r * shapes.kStreams, 0.5f);
    std::fill_n(comb, r * shapes.kStreams * shapes.kStreams,
                0.125f);  // expand works in place: must not grow
  }
};

KernelCase MixCase(const Shapes& shapes, const KernelTable& k, int rows, int) {
  const Mixing m(shapes, k, rows);
  const MixArgs a = {.n_rows = &m.s->n_rows,
                     .streams = m.streams,
                     .raw = m.raw,
                     .base = m.base,
                     .scale = m.scale,
                     .pre = m.pre,
                     .post = m.post,
                     .comb = m.comb,
                     .n_streams = shapes.kStreams,
                     .hidden = shapes.hidden,
                     .iterations = 20,
                     .hc_eps = kEps,
                     .rms_eps = kEps};
  return CachedCase(m.streams, int64_t{4} * rows * shapes.kStreams * shapes.hidden,
                    [m, a, kernel = k.mix](Work w) { kernel(a, w); });
}

KernelCase CollapseCase(const Shapes& shapes, const KernelTable& k, int rows, int) {
  const Mixing m(shapes, k, rows);
  const CollapseArgs a = {.n_rows = &m.s->n_rows,
                          .streams = m.streams,
                          .pre = m.pre,
                          .y = m.out,
                          .n_streams = shapes.kStreams,
                          .hidden = shapes.hidden,
                          .round = true};
  return CachedCase(m.streams, int64_t{4} * rows * (shapes.kStreams + 1) * shapes.hidden,
                    [m, a, kernel = k.collapse](Work w) { kernel(a, w); });
}

KernelCase ExpandCase(const Shapes& shapes, const KernelTable& k, int rows, int) {
  const Mixing m(shapes, k, rows);
  const ExpandArgs a = {.n_rows = &m.s->n_rows,
                        .out = m.out,
                        .post = m.post,
                        .comb = m.comb,
                        .streams = m.streams,
                        .n_streams = shapes.kStreams,
                        .hidden = shapes.hidden,
                        .round = true};
  return CachedCase(m.streams, int64_t{4} * rows * (shapes.kStreams + 1) * shapes.hidden,
                    [m, a, kernel = k.expand](Work w) { kernel(a, w); });
}

}  // namespace

KernelCase CachedCase(const float* data, int64_t bytes, std::function<void(Work)> run) {
  KernelCase result;
  result.calls = 1;
  result.bytes = bytes;
  result.repeats = std::max<int64_t>(kSampleBytes / bytes, 1);
  result.flops = 0;
  result.data = [data](int64_t) { return reinterpret_cast<const uint8_t*>(data); };
  result.run = [run = std::move(run)](int64_t, Work work) { run(work); };
  return result;
}

float* CaseBuffers::Take(int64_t n) {
  float* taken = reinterpret_cast<float*>(arena_.base()) + used_;
  used_ += RoundUp(n);
  DI_CHECK(4 * used_ <= arena_.bytes());
  return taken;
}

void FillActivations(const KernelTable& kernels, Grid grid, int32_t rows, int64_t cols, float* x) {
  const int64_t n = rows * cols;
  FillWeights(DType::kF32, static_cast<uint64_t>(cols), reinterpret_cast<uint8_t*>(x), 4 * n);
  if (grid == Grid::kF32) return;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) & 0xffff0000u);
  }
  if (grid == Grid::kBf16) return;
  const QuantRowsArgs a = {.n_rows = &rows,
                           .x = x,
                           .y = x,
                           .cols = static_cast<int32_t>(cols),
                           .format = RowFormat::kFp8Block32,
                           .fp8_max = 448};
  kernels.quant_rows(a, {0, 1});
}

std::span<const ActivationOp> ElementwiseOps() {
  static constexpr ActivationOp kOps[] = {{"rms_norm", Wide, RmsNormCase},
                                          {"quant_rows", Wide, QuantRowsCase},
                                          {"add", Wide, AddCase},
                                          {"mix", Streams, MixCase},
                                          {"collapse", Streams, CollapseCase},
                                          {"expand", Streams, ExpandCase}};
  return kOps;
}

}  // namespace deepinfer
