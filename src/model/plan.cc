#include "model/plan.h"

#include <utility>

#include "base/check.h"

namespace deepinfer {

namespace {

struct PlanRun {
  Team* team;
  const RegionPlan* plan;
  const ProbeFn* observer;
  StepProfile* profile;
};

// One phase on one thread, with its barrier, on the clock.
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
      phase.invoke(phase.kernel, phase.args, work);
      run.team->Barrier();
    }
    if (run.observer == nullptr) continue;
    const std::vector<Probe>& probes = run.plan->probes;
    for (; next_probe < probes.size() && probes[next_probe].phase == i; ++next_probe) {
      if (tid == 0) (*run.observer)(probes[next_probe]);
    }
    run.team->Barrier();
  }
}

}  // namespace

void RunPlan(Team& team, const RegionPlan& plan, const ProbeFn* observer, StepProfile* profile) {
  PlanRun run{&team, &plan, observer, profile};
  team.Run(RunThread, &run);
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
