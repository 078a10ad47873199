// What the tests of ranks share: worlds of threads with a driver and its followers.
#pragma once

#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/executor.h"
#include "engine/rank_load.h"
#include "parallel/thread_comm.h"

namespace deepinfer {

using Tokens = std::vector<TokenId>;
using Bits = std::vector<uint32_t>;

inline const std::string kCheckpoints = std::string(DI_SOURCE_DIR) + "/build/testdata/checkpoints/";

inline ExecutorOptions Options(const std::string& checkpoint, const std::string& numerics,
                               const std::string& isa) {
  ExecutorOptions o;
  o.engine.model = kCheckpoints + checkpoint;
  o.engine.max_model_len = 96;
  o.engine.max_num_batched_tokens = 24;
  o.engine.max_num_seqs = 3;
  o.engine.prefix_cache_mib = 0;
  o.engine.threads = 1;
  o.engine.rank_timeout_s = 60;
  o.engine.isa = isa;
  o.engine.numerics = numerics;
  o.all_logits = true;
  return o;
}

inline void Append(std::span<const float> values, Bits* bits) {
  for (float v : values) bits->push_back(std::bit_cast<uint32_t>(v));
}

using Comms = std::vector<std::unique_ptr<Comm>>;

// Every rank on a thread of its own: `lead` on the first, while the others do what it says.
template <class Lead>
void LeadRanks(const Comms& comms, const Lead& lead) {
  std::vector<std::thread> followers;
  for (size_t r = 1; r < comms.size(); ++r) followers.emplace_back(FollowDriver, comms[r].get());
  lead(comms[0].get());
  SendEnd(comms[0].get());
  for (std::thread& t : followers) t.join();
}

// What rank 0 makes of `run` with the other ranks behind it.
template <class Result>
Result OnRanks(const Comms& comms, ExecutorOptions options, const LayoutOptions& layout,
               const std::function<Result(Executor&)>& run) {
  options.engine.layout = layout.layout, options.engine.batch_ranks = layout.batch_ranks;
  options.engine.reduce = layout.reduce, options.engine.engram = layout.engram;
  Result result;
  LeadRanks(comms, [&](Comm* world) {
    options.world = world;
    SendLoad(options);
    Executor driver(options);
    result = run(driver);
  });
  return result;
}

template <class Result>
Result OnRanks(const ExecutorOptions& options, int ranks, const LayoutOptions& layout,
               const std::function<Result(Executor&)>& run) {
  return OnRanks(MakeThreadWorld(ranks, std::chrono::seconds(60)), options, layout, run);
}

struct World {
  const char* layout;
  int ranks;
  int batch_ranks = 0;  // 0: one batch
  const char* engram = "host";
  const char* reduce = "exact";

  LayoutOptions options() const { return {layout, ranks, batch_ranks, reduce, engram}; }
};

// Under sanitizers, which make ranks slow, the first alone.
inline std::vector<World> SomeOf(std::vector<World> worlds) {
#ifdef DI_SANITIZED
  worlds.resize(1);
#endif
  return worlds;
}

}  // namespace deepinfer
