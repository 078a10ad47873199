#include "obs/census.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer {

namespace {

CensusRow NamedRow(std::string name) {
  CensusRow row;
  row.name = std::move(name);
  return row;
}

}  // namespace

CensusRow& CensusRow::operator+=(const CensusRow& other) {
  calls += other.calls;
  seconds += other.seconds;
  wait_seconds += other.wait_seconds;
  bytes += other.bytes;
  flops += other.flops;
  return *this;
}

void Census::Add(const StepProfile& step) {
  const auto phases = step.phases();
  if (entries_.empty()) {
    for (const PhaseRecord& p : phases) entries_.push_back({p.layer, NamedRow(p.name)});
  }
  DI_CHECK(entries_.size() == phases.size()) << entries_.size() << " and " << phases.size();
  ++steps_;
  for (size_t i = 0; i < phases.size(); ++i) {
    const PhaseTimes& first = step.times(0)[i];
    CensusRow call;
    call.calls = 1;
    call.bytes = phases[i].bytes;
    call.flops = phases[i].flops;
    call.seconds = static_cast<double>(first.leave - first.begin) * 1e-9;
    for (int tid = 0; tid < step.threads(); ++tid) {
      const PhaseTimes& t = step.times(tid)[i];
      call.wait_seconds += static_cast<double>(t.leave - t.end) * 1e-9 / step.threads();
    }
    entries_[i].row += call;
  }
}

std::vector<CensusRow> Census::By(const Group& group) const {
  std::vector<CensusRow> rows;
  for (const Entry& e : entries_) {
    const std::string name = group(e.row.name, e.layer);
    if (name.empty()) continue;
    auto it = std::ranges::find(rows, name, &CensusRow::name);
    if (it == rows.end()) it = rows.insert(rows.end(), NamedRow(name));
    *it += e.row;
  }
  return rows;
}

CensusRow Census::Total() const {
  return Total([](const std::string&, int) { return true; });
}

CensusRow Census::Total(
    const std::function<bool(const std::string& phase, int layer)>& is_wanted) const {
  CensusRow sum;
  for (const Entry& e : entries_) {
    if (is_wanted(e.row.name, e.layer)) sum += e.row;
  }
  return sum;
}

}  // namespace deepinfer
