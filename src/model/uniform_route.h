// Routers for measurements: experts spread evenly, whatever the weights say. With random weights
// the model's own router may prefer a few.
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace deepinfer {

// ids[r]: topk different experts; weights all scaling / topk.
//
// overlap < 0: by a hash of the row's token, its position and the layer. Else neighbouring
// positions share that part of their experts in the mean, and positions further apart none as long
// as the experts last: they lie on a ring, and each position begins topk * (1 - overlap) further.
struct UniformRouteArgs {
  const int32_t* n_rows;
  const TokenId* tokens;     // [rows]
  const int32_t* positions;  // [rows]
  int32_t* ids;              // [rows, topk]
  float* weights;            // [rows, topk]
  int32_t n_experts, topk, layer;
  float scaling;
  float overlap;
};
void UniformRoute(const UniformRouteArgs& a, Work w);

}  // namespace deepinfer
