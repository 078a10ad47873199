#include "bench/kernel_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "bench/case_parts.h"

namespace deepinfer {
namespace {

struct MatrixOp {
  enum Kind { kGateUp, kDown, kLinear };
  const char* name;
  Kind kind;
  DType dtype;
  int32_t outputs, inputs;
  int32_t group_out = 0;
  int32_t slices = 0;  // the matrix is timed in so many parts of its outputs; 0: many whole ones
};

std::vector<MatrixOp> MatrixOps(const Shapes& s) {
  const DType fp4 = DType::kFp4Row32, fp8 = DType::kFp8Tile32;
  const int32_t low = s.kOGroups * s.o_lora_rank, heads_cols = s.heads * s.kHeadDim;
  return {
      {"gate_up", MatrixOp::kGateUp, fp4, s.inter, s.hidden},
      {"down", MatrixOp::kDown, fp4, s.hidden, s.inter},
      {"shared_gate_up", MatrixOp::kGateUp, fp8, s.inter, s.hidden},
      {"shared_down", MatrixOp::kLinear, fp8, s.hidden, s.inter},
      {"wq_a", MatrixOp::kLinear, fp8, s.q_lora_rank, s.hidden},
      {"wq_b", MatrixOp::kLinear, fp8, heads_cols, s.q_lora_rank},
      {"wo_a", MatrixOp::kLinear, fp8, low, heads_cols / s.kOGroups, s.o_lora_rank},
      {"wo_b", MatrixOp::kLinear, fp8, s.hidden, low},
      {"head", MatrixOp::kLinear, DType::kBf16, s.vocab, s.hidden, 0, s.cut > 1 ? 32 : 8},
      {"mixer", MatrixOp::kLinear, DType::kF32, (2 + s.kStreams) * s.kStreams,
       s.kStreams * s.hidden},
  };
}

std::string ShapeText(const MatrixOp& op) {
  const char* dtype = op.dtype == DType::kFp4Row32 ? "fp4"
                      : op.dtype == DType::kBf16   ? "bf16"
                      : op.dtype == DType::kF32    ? "fp32"
                                                   : "fp8";
  return fmt::format("{} [{}, {}]{}", dtype, op.outputs, op.inputs,
                     op.kind == MatrixOp::kGateUp ? " x 2" : "");
}

// So much is read by one call, a few milliseconds of work: more rows, fewer bytes.
int64_t TargetBytes(int rows) { return (rows <= 16 ? 24 : 6) * (int64_t{1} << 20); }

// The matrices of an op and how its calls walk through them.
struct Matrices {
  Shapes shapes;
  std::vector<WeightView> views;
  int64_t each;      // bytes
  int64_t per_unit;  // matrices that belong together: 2 for gate and up

  int64_t units() const { return static_cast<int64_t>(views.size()) / per_unit; }
  int64_t UnitsPerCall(int rows) const {
    if (shapes.cut > 1) return 1;
    return std::clamp<int64_t>(TargetBytes(rows) / (each * per_unit), 1, units());
  }
};

// The parts of a case that all products share.
KernelCase CaseOver(std::shared_ptr<const Matrices> m, int rows) {
  const int64_t n = m->UnitsPerCall(rows);
  const WeightView& w = m->views.front();
  KernelCase result;
  result.calls = m->units() / n;
  result.repeats = 1;
  result.bytes = n * m->per_unit * m->each;
  result.flops = 2.0 * rows * static_cast<double>(n * m->per_unit * w.rows * w.cols);
  result.data = [m, n](int64_t call) {
    return m->views[static_cast<size_t>(call * n * m->per_unit)].data;
  };
  return result;
}

KernelCase LinearCase(const MatrixOp& op, std::shared_ptr<const Matrices> m, const KernelTable& k,
                      int rows, int threads) {
  struct State {
    int32_t n_rows;
    CaseBuffers buffers;
    LinearArgs args;
  };
  const int64_t groups = op.group_out > 0 ? op.outputs / op.group_out : 1;
  const int64_t x_cols = groups * op.inputs, outputs = m->views.front().rows;
  const int64_t scratch = CaseBuffers::RoundUp(LinearScratchFloats(op.inputs));
  const auto state = std::make_shared<State>(
      State{rows,
            CaseBuffers(CaseBuffers::RoundUp(rows * x_cols) + CaseBuffers::RoundUp(rows * outputs) +
                        threads * scratch),
            {}});
  const Grid grid = op.dtype == DType::kF32    ? Grid::kF32
                    : op.dtype == DType::kBf16 ? Grid::kBf16
                                               : Grid::kQ8;
  float* x = state->buffers.Take(rows * x_cols);
  FillActivations(k, grid, rows, x_cols, x);
  LinearArgs& a = state->args;
  a.n_rows = &state->n_rows;
  a.x = x, a.x_stride = x_cols;
  a.y = state->buffers.Take(rows * outputs), a.y_stride = outputs;
  a.group_out = op.group_out;
  a.decode = WeightDecode::kAsStored;
  a.round = op.dtype != DType::kF32;
  a.bf16_inputs = op.dtype != DType::kF32;
  a.scratch = state->buffers.Take(threads * scratch), a.scratch_stride = scratch;
  KernelCase result = CaseOver(m, rows);
  result.run = [state, m, linear = k.linear, n = m->UnitsPerCall(rows)](int64_t call, Work work) {
    LinearArgs args = state->args;
    for (int64_t i = 0; i < n; ++i) {
      args.w = m->views[static_cast<size_t>(call * n + i)];
      linear(args, work);
    }
  };
  return result;
}

// All experts of a call get all rows.
struct ExpertState {
  int32_t n_rows, n_active;
  std::vector<int32_t> active, begin, rows;
  std::vector<float> weights;
  std::vector<ExpertWeights> experts;
  CaseBuffers buffers;
  float *x, *act, *y, *scratch;
  int64_t scratch_stride;

  ExpertPairs Pairs(int64_t call) {
    return {&n_active, active.data() + call * n_active, begin.data(), rows.data(), weights.data()};
  }
};

std::shared_ptr<ExpertState> MakeExpertState(const Matrices& m, const KernelTable& k, int rows,
                                             int threads) {
  const int64_t units = m.units(), n = m.UnitsPerCall(rows), pairs = n * rows;
  const int32_t hidden = m.shapes.hidden, inter = m.shapes.inter;
  const int64_t scratch = CaseBuffers::RoundUp(ExpertScratchFloats(std::max(hidden, inter)));
  const auto state = std::make_shared<ExpertState>(
      ExpertState{rows,
                  static_cast<int32_t>(n),
                  {},
                  {},
                  {},
                  {},
                  {},
                  CaseBuffers(2 * CaseBuffers::RoundUp(rows * hidden) +
                              CaseBuffers::RoundUp(pairs * inter) + threads * scratch),
                  nullptr,
                  nullptr,
                  nullptr,
                  nullptr,
                  scratch});
  for (int64_t e = 0; e < units; ++e) {
    const WeightView& first = m.views[static_cast<size_t>(e * m.per_unit)];
    const WeightView& last = m.views[static_cast<size_t>((e + 1) * m.per_unit - 1)];
    state->experts.push_back({.w1 = first, .w3 = last, .w2 = first});
    state->active.push_back(static_cast<int32_t>(e));
  }
  for (int64_t i = 0; i <= n; ++i) state->begin.push_back(static_cast<int32_t>(i * rows));
  for (int64_t p = 0; p < pairs; ++p) state->rows.push_back(static_cast<int32_t>(p % rows));
  state->weights.assign(static_cast<size_t>(pairs), 0.5f);
  state->x = state->buffers.Take(rows * hidden);
  state->y = state->buffers.Take(rows * hidden);
  state->act = state->buffers.Take(pairs * inter);
  state->scratch = state->buffers.Take(threads * scratch);
  FillActivations(k, Grid::kQ8, rows, hidden, state->x);
  FillActivations(k, Grid::kQ8, static_cast<int32_t>(pairs), inter, state->act);
  return state;
}

KernelCase GateUpCase(std::shared_ptr<const Matrices> m, const KernelTable& k, int rows,
                      int threads) {
  const auto state = MakeExpertState(*m, k, rows, threads);
  KernelCase result = CaseOver(m, rows);
  result.run = [state, m, gate_up = k.gate_up](int64_t call, Work work) {
    GateUpArgs a = {};
    a.pairs = state->Pairs(call);
    a.experts = state->experts.data();
    a.x = state->x, a.act = state->act;
    a.hidden = m->shapes.hidden, a.inter = m->shapes.inter;
    a.limit = 10, a.fp8_max = 448;
    a.round = a.bf16_inputs = a.fp8_inputs = true;
    a.scratch = state->scratch, a.scratch_stride = state->scratch_stride;
    gate_up(a, work);
  };
  return result;
}

KernelCase DownCase(std::shared_ptr<const Matrices> m, const KernelTable& k, int rows,
                    int threads) {
  const auto state = MakeExpertState(*m, k, rows, threads);
  KernelCase result = CaseOver(m, rows);
  result.run = [state, m, down = k.down](int64_t call, Work work) {
    DownArgs a = {};
    a.n_rows = &state->n_rows;
    a.pairs = state->Pairs(call);
    a.experts = state->experts.data();
    a.act = state->act, a.y = state->y;
    a.hidden = m->shapes.hidden, a.inter = m->shapes.inter;
    a.round = a.bf16_inputs = a.fp8_inputs = true;
    a.scratch = state->scratch, a.scratch_stride = state->scratch_stride;
    down(a, work);
  };
  return result;
}

std::shared_ptr<const Matrices> MakeMatrices(const MatrixOp& op, const Shapes& shapes,
                                             WeightPool& pool) {
  const int64_t slices = std::max<int64_t>(op.slices, 1), outputs = op.outputs / slices;
  const int64_t each = MatrixBytes(op.dtype, outputs, op.inputs);
  const int64_t per_unit = op.kind == MatrixOp::kGateUp ? 2 : 1;
  const int64_t count = std::min(pool.bytes() / (each * per_unit) * per_unit,
                                 op.slices > 0 ? slices : std::numeric_limits<int64_t>::max());
  return std::make_shared<const Matrices>(
      Matrices{shapes, pool.Matrices(op.dtype, outputs, op.inputs, count), each, per_unit});
}

}  // namespace

std::vector<std::string> KernelOp::Names() {
  std::vector<std::string> names;
  for (const MatrixOp& op : MatrixOps(Shapes(1))) names.push_back(op.name);
  for (const ActivationOp& op : AttentionOps()) names.push_back(op.name);
  for (const ActivationOp& op : ElementwiseOps()) names.push_back(op.name);
  return names;
}

KernelOp::KernelOp(const std::string& name, WeightPool& pool, int cut)
    : name_(name), has_weights_(false) {
  const Shapes shapes(cut);
  for (const MatrixOp& op : MatrixOps(shapes)) {
    if (name != op.name) continue;
    shape_ = ShapeText(op);
    has_weights_ = true;
    make_ = [op, m = MakeMatrices(op, shapes, pool)](const KernelTable& k, int rows, int threads) {
      if (op.kind == MatrixOp::kGateUp) return GateUpCase(m, k, rows, threads);
      if (op.kind == MatrixOp::kDown) return DownCase(m, k, rows, threads);
      return LinearCase(op, m, k, rows, threads);
    };
    return;
  }
  for (const std::span<const ActivationOp> ops : {AttentionOps(), ElementwiseOps()}) {
    for (const ActivationOp& op : ops) {
      if (name != op.name) continue;
      shape_ = op.shape(shapes);
      make_ = [shapes, make = op.make](const KernelTable& k, int rows, int threads) {
        return make(shapes, k, rows, threads);
      };
      return;
    }
  }
  throw Error(Code::kInvalid,
              fmt::format("--op: expected some of {}, found '{}'", fmt::join(Names(), ", "), name));
}

}  // namespace deepinfer
