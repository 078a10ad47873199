// Router and experts (spec 01 section 7).
#pragma once

#include "ops/linear.h"
#include "ops/op.h"

namespace deepinfer {

// s_e = sqrt(softplus(logits[e])) with softplus(z) = z for z > 20; the topk largest of s_e +
// bias[e] (lower id first on ties), best first; weights = s_e without the bias, divided by (their
// sum + 1e-20) if `normalize`, times `scaling`. A NaN among the row's scores or biases is chosen
// last and makes all weights of the row NaN: it must not pass as a choice. Threads share rows.
struct RouteArgs {
  const int32_t* n_rows;
  const float* logits;  // [rows, n_experts]
  const uint8_t* bias;  // [n_experts] fp32, any alignment
  int32_t* ids;         // [rows, topk]
  float* weights;       // [rows, topk]
  int32_t n_experts, topk;
  bool normalize;
  float scaling;
};

// The (row, expert) pairs of a step, grouped by expert: expert active[i] (ascending ids, i <
// n_active) has the pairs begin[i] ... begin[i + 1], rows ascending. Sized for rows * topk pairs
// whatever the routing.
struct ExpertPairs {
  int32_t* n_active;  // one value
  int32_t* active;    // [n_experts]
  int32_t* begin;     // [n_experts + 1]
  int32_t* rows;      // [max rows * topk] row of the step
  float* weights;     // [max rows * topk]
};

// Fills ExpertPairs from the router's choice. Runs on the last thread, which also routes the last
// row: for a single row no barrier is needed between the two.
struct GroupPairsArgs {
  const int32_t* n_rows;
  const int32_t* ids;    // [rows, topk]
  const float* weights;  // [rows, topk]
  int32_t n_experts, topk;
  ExpertPairs pairs;
};

struct ExpertWeights {
  WeightView w1, w3, w2;  // gate [inter, hidden], up [inter, hidden], down [hidden, inter]
};

// Per thread, for kernels that take apart inputs of whole groups of 512 columns.
static inline int64_t ExpertScratchFloats(int64_t cols) {
  return LinearScratchFloats((cols + 511) / 512 * 512);
}

// Looks for NaN scales (byte 255) in experts that are used for the first time; marks them checked,
// reports a fault.
struct CheckExpertsArgs {
  ExpertPairs pairs;
  const ExpertWeights* experts;  // [n_experts]
  uint8_t* checked;              // [n_experts] 1 = seen and sound
  int32_t layer;
  Fault* fault;
};

//   g = w1 . x[row_p]
//   u = w3 . x[row_p]
//   act[p] = Q( b( silu(min(b(g), limit)) * clamp(b(u), -limit, limit) * weight_p ) )
// b rounds to bf16 if `round`, Q is the Q8 quantiser if fp8_max > 0. limit 0 means no clamp. NaN
// stays NaN. Threads share every expert by output columns, in units of 32.
struct GateUpArgs {
  ExpertPairs pairs;             // weights == nullptr: no routing weight (shared expert)
  const ExpertWeights* experts;  // indexed by expert id
  const float* x;                // [rows, hidden], quantised where the numerics say so
  float* act;                    // [pairs, inter]
  int32_t hidden, inter;
  float limit, fp8_max;
  WeightDecode decode;
  bool round;
  bool bf16_inputs = false;  // x lies on the bf16 grid, see LinearArgs
  // Every block of 32 columns of x comes from the Q8 quantiser: e4m3 values times one power of two.
  // Kernels may then multiply fp4 weights exactly, as integers, and let a value that is not finite
  // make its whole row NaN.
  bool fp8_inputs = false;
  // Per thread: scratch + tid * scratch_stride, 64-byte aligned; ExpertScratchFloats(hidden).
  float* scratch;
  int64_t scratch_stride;  // floats
};

// y[r] = sum over the row's experts, ascending id, of b( w2 . act[pair] ), fp32; rows without a
// pair give 0. b as above. Threads share columns of y.
struct DownArgs {
  const int32_t* n_rows;
  ExpertPairs pairs;
  const ExpertWeights* experts;
  const float* act;  // [pairs, inter]
  float* y;          // [rows, hidden]
  int32_t hidden, inter;
  bool round;
  bool bf16_inputs = false;  // act lies on the bf16 grid, see LinearArgs
  bool fp8_inputs = false;   // act comes from the Q8 quantiser, see GateUpArgs
  float* scratch;            // ExpertScratchFloats(inter) a thread
  int64_t scratch_stride;    // floats
};

}  // namespace deepinfer
