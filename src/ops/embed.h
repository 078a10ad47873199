// Token embedding, the start of the residual streams.
#pragma once

#include "ops/op.h"

namespace deepinfer {

// streams[r, s] = table[ids[r]] for every stream s; pre[r] = (1, 0, 0, ...) (spec 01 section 3).
// Threads share columns; pre comes from the thread of the first.
struct EmbedArgs {
  const int32_t* n_rows;
  const int32_t* ids;  // [rows], each inside the table (the engine has checked)
  WeightView table;    // bf16 [vocabulary, hidden]
  float* streams;      // [rows, n_streams, hidden]
  float* pre;          // [rows, n_streams]
  int32_t n_streams;
};

}  // namespace deepinfer
