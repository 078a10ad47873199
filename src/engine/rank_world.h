// RankWorld: an executor's place among the ranks that share its model (docs/ranks.md). Rank 0, the
// driver, has the requests and tells the others what every step computes; they follow.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/layout.h"
#include "engine/rank_records.h"
#include "model/ranks.h"
#include "ops/op.h"
#include "parallel/comm.h"

namespace deepinfer {

class RankWorld {
 public:
  // All ranks of `world` at once; it outlives this. Throws Error kInvalid when the model does not
  // fit the layout, kIo when the world fails.
  RankWorld(const ModelConfig& config, LayoutOptions layout, Comm* world);

  const Ranks& ranks() const { return ranks_; }
  RankRecords& records() { return records_; }
  bool is_driver() const { return ranks_.rank == 0; }

  // Throws Error kInvalid on the ranks whose `text` is not that of rank 0.
  void ExpectSame(const std::string& text);
  // All ranks have loaded: from now on they wait so long for each other.
  void BeginSteps(std::chrono::milliseconds deadline);
  // The fault of the lowest rank that has one, on all ranks.
  Fault Share(const Fault& fault);
  // Of all communicators, since the last time.
  CommStats TakeStats();

 private:
  const Layout layout_;
  const std::unique_ptr<Comm> batch_, attention_, group_;
  const Ranks ranks_;
  RankRecords records_;
  Cuts fault_cuts_;
  std::vector<float> faults_;  // words of one Fault a rank
};

}  // namespace deepinfer
