// What an operation must do, whatever kernel does it: bytes it has to read from memory (weights and
// cache rows, each once however many rows of the step share them; activations are not counted) and
// floating point operations. Looked at just before the operation runs: row counts, chosen experts
// and selected rows are those of this step.
#pragma once

#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/engram.h"
#include "ops/linear.h"
#include "ops/moe.h"

namespace deepinfer {

struct OpCost {
  int64_t bytes = 0;
  double flops = 0;

  OpCost& operator+=(const OpCost& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

OpCost CostOf(const LinearArgs& a);
OpCost CostOf(const EmbedArgs& a);
OpCost CostOf(const GateUpArgs& a);
OpCost CostOf(const DownArgs& a);
OpCost CostOf(const EngramGatherArgs& a);
OpCost CostOf(const IndexSelectArgs& a);
OpCost CostOf(const AttentionArgs& a);
// Every other operation works on activations.
template <class Args>
OpCost CostOf(const Args&) {
  return {};
}

// Bytes of a weight and its scales.
int64_t ViewBytes(const WeightView& w);

}  // namespace deepinfer
