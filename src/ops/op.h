// What every operation shares: how a kernel is called, how work is cut, how bad data is reported.
//
// Activations are float everywhere. With --numerics release and trn2 their values lie on the bf16
// grid: an op whose arguments say `round` rounds its results to bf16 (to nearest even) exactly
// where spec 03 section 3 does, so one code path serves the rounded numerics and fp32. Row counts
// are read through pointers when the kernel runs, because the arguments of a plan never change
// while the number of valid rows does.
//
// Kernels do not allocate, lock, throw or log. A row's result depends on that row alone: never on
// n_rows, on the other rows, or on how the work is cut over threads.
#pragma once

#include <stdint.h>

#include "base/types.h"

namespace deepinfer {

// Which part of how many: thread `tid` of `n`.
struct Work {
  int tid, n;
};

template <class Args>
using KernelOf = void (*)(const Args& args, Work work);

// Rows of scales a view covers: a tile of scales covers 32 rows of weights.
static inline int64_t ScaleRows(const WeightView* w) {
  return w->dtype == DType::kFp8Tile32 ? (w->rows + w->scale_row0 + 31) / 32 : w->rows;
}

// A half-open range of work items.
struct Span {
  int64_t begin, end;
};

// The part of [0, count) that belongs to this thread, cut at multiples of `unit`; parts differ by
// at most one unit.
static inline Span SplitWork(int64_t count, int64_t unit, Work work) {
  const int64_t units = (count + unit - 1) / unit;
  const int64_t begin = units * work.tid / work.n * unit,
                end = units * (work.tid + 1) / work.n * unit;
  return {begin < count ? begin : count, end < count ? end : count};
}

// The columns of every row that belong to this thread. Ops whose contract says "threads share
// columns" cut all rows at the same places, so a thread finds in its part of one op's result what
// it needs for its part of the next: no barrier in between (Start::kOnOwn, model/plan.h). 32: one
// block of the quantisers.
static inline Span SplitColumns(int64_t cols, Work work) { return SplitWork(cols, 32, work); }

// Bad checkpoint data met inside a step. The first one found is kept (which one is not fixed when
// several threads meet one); the engine looks at it after the step and answers with a sentence.
struct Fault {
  enum Kind : int32_t { kNone = 0, kExpertScaleNan, kEngramScaleNan };
  int32_t kind;   // set once, by an atomic compare-and-swap from kNone
  int32_t layer;  // layer of the tensor
  int64_t index;  // expert id * 3 + {0: w1, 1: w3, 2: w2}, or table row
};

// Keeps the first fault that is reported.
static inline void ReportFault(Fault* fault, Fault::Kind kind, int32_t layer, int64_t index) {
  int32_t none = Fault::kNone;
  if (!__atomic_compare_exchange_n(&fault->kind, &none, kind, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE))
    return;
  fault->layer = layer;  // read after the step only
  fault->index = index;
}

}  // namespace deepinfer
