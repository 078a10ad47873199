#include "model/plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"

namespace deepinfer {

namespace {

struct PlanRun {
  Team* team;
  const RegionPlan* plan;
  const ProbeFn* observer;
  StepProfile* profile;
  uint32_t seed;
};

// One phase on one thread, with a barrier of its own whatever its start, on the clock.
void RunProfiled(const PlanRun& run, size_t i, Work work) {
  const Phase& phase = run.plan->phases[i];
  if (work.tid == 0) {
    const OpCost cost = phase.cost(phase.args);
    run.profile->Describe(i, {phase.name, phase.layer, cost.bytes, cost.flops});
  }
  PhaseTimes times;
  times.begin = StepProfile::Now();
  phase.invoke(phase.kernel, phase.args, work);
  times.end = StepProfile::Now();
  run.team->Barrier();
  times.leave = StepProfile::Now();
  run.profile->Record(work.tid, i, times);
}

void RunThread(void* context, int tid) {
  const PlanRun& run = *static_cast<PlanRun*>(context);
  const Work work{tid, run.team->size()};
  size_t next_probe = 0;
  for (size_t i = 0; i < run.plan->phases.size(); ++i) {
    const Phase& phase = run.plan->phases[i];
    if (run.profile != nullptr) {
      RunProfiled(run, i, work);
    } else {
      if (i > 0 && phase.start == Start::kAfterAll) run.team->Barrier();
      phase.invoke(phase.kernel, phase.args, work);
    }
    const std::vector<Probe>& probes = run.plan->probes;
    if (run.observer == nullptr || next_probe == probes.size() || probes[next_probe].phase != i)
      continue;
    run.team->Barrier();
    for (; next_probe < probes.size() && probes[next_probe].phase == i; ++next_probe) {
      if (tid == 0) (*run.observer)(probes[next_probe]);
    }
    run.team->Barrier();
  }
}

// First phases of the chains of the group that begins at phase `begin`, and one past the last: a
// chain is a phase and those that build on its parts.
std::vector<size_t> Chains(const std::vector<Phase>& phases, size_t begin) {
  std::vector<size_t> chains = {begin};
  size_t i = begin + 1;
  for (; i < phases.size() && phases[i].start != Start::kAfterAll; ++i) {
    if (phases[i].start == Start::kBeside) chains.push_back(i);
  }
  chains.push_back(i);
  return chains;
}

void RunThreadShuffled(void* context, int tid) {
  const PlanRun& run = *static_cast<PlanRun*>(context);
  const Work work{tid, run.team->size()};
  const std::vector<Phase>& phases = run.plan->phases;
  std::minstd_rand random(run.seed + static_cast<uint32_t>(tid));
  for (size_t begin = 0; begin < phases.size();) {
    const std::vector<size_t> chains = Chains(phases, begin);
    std::vector<size_t> order(chains.size() - 1);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (size_t chain : order) {
      for (size_t i = chains[chain]; i < chains[chain + 1]; ++i)
        phases[i].invoke(phases[i].kernel, phases[i].args, work);
    }
    run.team->Barrier();
    begin = chains.back();
  }
}

}  // namespace

void RunPlan(Team& team, const RegionPlan& plan, const ProbeFn* observer, StepProfile* profile) {
  PlanRun run{&team, &plan, observer, profile, 0};
  team.Run(RunThread, &run);
}

void RunPlanShuffled(Team& team, const RegionPlan& plan, uint32_t seed) {
  PlanRun run{&team, &plan, nullptr, nullptr, seed};
  team.Run(RunThreadShuffled, &run);
}

namespace {

Probe MakeProbe(const RegionPlan& plan, std::string name, Probe::Type type, void* data,
                const int32_t* n_rows, int64_t cols) {
  DI_CHECK(!plan.phases.empty()) << "probe " << name << " before the first phase";
  return {plan.phases.size() - 1, std::move(name), type, data, n_rows, cols};
}

}  // namespace

void PlanBuilder::AddProbe(std::string name, float* data, const int32_t* n_rows, int64_t cols) {
  plan_.probes.push_back(MakeProbe(plan_, std::move(name), Probe::Type::kF32, data, n_rows, cols));
}

void PlanBuilder::AddProbe(std::string name, int32_t* data, const int32_t* n_rows, int64_t cols) {
  plan_.probes.push_back(MakeProbe(plan_, std::move(name), Probe::Type::kI32, data, n_rows, cols));
}

void PlanBuilder::AddProbe(std::string name, int64_t* data, const int32_t* n_rows, int64_t cols) {
  plan_.probes.push_back(MakeProbe(plan_, std::move(name), Probe::Type::kI64, data, n_rows, cols));
}

}  // namespace deepinfer
