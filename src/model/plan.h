// Region plans: a step as a fixed list of phases, built once and replayed by the team
// (docs/architecture.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/team.h"
#include "obs/profile.h"
#include "ops/cost.h"
#include "ops/op.h"

namespace deepinfer {

// What a phase waits for. Phases from one kAfterAll to the next are a group: no barrier stands
// between them, so each thread runs through its parts of the group alone.
enum class Start : uint8_t {
  kAfterAll,  // everything before: a barrier
  kBeside,    // the last barrier only: reads nothing that the group writes, and writes nothing that
              // it touches (the scratch of the own thread aside)
  kOnOwn,     // the own thread's part of the phase before, which left it all it reads of the group
};

// One kernel call by all threads. args point into arena, weights, caches and step inputs, and never
// change.
struct Phase {
  const char* name;
  Start start;
  void (*invoke)(void (*kernel)(), const void* args, Work work);
  void (*kernel)();
  const void* args;
  OpCost (*cost)(const void* args);
  int layer;  // -1: outside the layers
};

// A named tensor that can be looked at, and changed, after a phase: golden tests read what a layer
// computed and feed layers with exact inputs.
struct Probe {
  enum class Type : uint8_t { kF32, kI32, kI64 };
  size_t phase;      // index of the phase after which the data is valid
  std::string name;  // as in the golden files: layers.3.attn_in
  Type type;
  void* data;             // [*n_rows, cols]
  const int32_t* n_rows;  // valid rows
  int64_t cols;
};

// A phase in which ranks exchange something (model/ranks.h).
struct Exchange {
  const char* name;
  const char* op;  // merge, gather: of CommCall
  int ranks;
  int64_t
      bytes;  // that a rank puts in, the most of any, when a step has as many rows as the bucket
};

struct RegionPlan {
  int64_t rows;  // bucket: most rows of a step
  std::vector<Exchange> exchanges;
  std::vector<Phase> phases;
  std::vector<Probe> probes;                       // by rising phase
  std::vector<std::unique_ptr<std::byte[]>> args;  // what Phase::args points to
};

// Called on thread 0 between phases, while the other threads wait.
using ProbeFn = std::function<void(const Probe&)>;

// Runs all phases. Without `observer` no probe costs anything, with it every probe brings a
// barrier; without `profile`, which must have room for the plan, no clock is read, with it a
// barrier follows every phase.
void RunPlan(Team& team, const RegionPlan& plan, const ProbeFn* observer = nullptr,
             StepProfile* profile = nullptr);

// The same, but every thread takes the phases of a group in a random order of its own (kOnOwn stays
// behind what it builds on). Results must not change (tests).
void RunPlanShuffled(Team& team, const RegionPlan& plan, uint32_t seed);

// Model code calls this to lay out memory and list phases. It runs twice for every bucket: once
// with base == nullptr to learn how much memory the plan needs (memory().peak_bytes()), once with
// the arena's address.
class PlanBuilder {
 public:
  PlanBuilder(int64_t rows, int threads, std::byte* base)
      : base_(reinterpret_cast<uintptr_t>(base)), threads_(threads) {
    plan_.rows = rows;
  }

  int64_t rows() const { return plan_.rows; }
  int threads() const { return threads_; }
  ArenaPlan& memory() { return memory_; }

  // Uninitialised memory for `count` values, until Restore to an earlier mark.
  template <class T>
  T* Temp(const char* name, int64_t count, int64_t align = 64) {
    const Buf buf = memory_.Book(name, count * static_cast<int64_t>(sizeof(T)), align);
    return reinterpret_cast<T*>(base_ + static_cast<uintptr_t>(buf.offset));
  }

  // Phases added from now on belong to this layer; -1: to none.
  void SetLayer(int layer) { layer_ = layer; }

  template <class Args>
  void Add(const char* name, KernelOf<Args> kernel, const Args& args,
           Start start = Start::kAfterAll) {
    AddPhase(name, kernel, args, start, &Cost<Args>);
  }
  // A further phase of an operation whose cost an earlier phase with the same arguments stands for.
  template <class Args>
  void AddUncounted(const char* name, KernelOf<Args> kernel, const Args& args) {
    AddPhase(name, kernel, args, Start::kAfterAll, [](const void*) { return OpCost{}; });
  }

  void NoteExchange(const Exchange& exchange) { plan_.exchanges.push_back(exchange); }

  void AddProbe(std::string name, float* data, const int32_t* n_rows, int64_t cols);
  void AddProbe(std::string name, int32_t* data, const int32_t* n_rows, int64_t cols);
  void AddProbe(std::string name, int64_t* data, const int32_t* n_rows, int64_t cols);

  RegionPlan Take() { return std::move(plan_); }

 private:
  template <class Args>
  void AddPhase(const char* name, KernelOf<Args> kernel, const Args& args, Start start,
                OpCost (*cost)(const void*)) {
    auto& bytes = plan_.args.emplace_back(new std::byte[sizeof(Args)]);
    const Args* copy = new (bytes.get()) Args(args);
    plan_.phases.push_back(
        {name, start, &Invoke<Args>, reinterpret_cast<void (*)()>(kernel), copy, cost, layer_});
  }

  template <class Args>
  static OpCost Cost(const void* args) {
    return CostOf(*static_cast<const Args*>(args));
  }

  template <class Args>
  static void Invoke(void (*kernel)(), const void* args, Work work) {
    reinterpret_cast<KernelOf<Args>>(kernel)(*static_cast<const Args*>(args), work);
  }

  uintptr_t base_;
  int threads_;
  int layer_ = -1;
  ArenaPlan memory_;
  RegionPlan plan_;
};

}  // namespace deepinfer
