#include "obs/census.h"

#include <algorithm>
#include <utility>

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

Census::Entry& Census::At(size_t place, const PhaseRecord& phase) {
  const auto is_it = [&](const Entry& e) {
    return e.layer == phase.layer && e.row.name == phase.name;
  };
  if (place < entries_.size() && is_it(entries_[place])) return entries_[place];
  const auto it = std::ranges::find_if(entries_, is_it);
  if (it != entries_.end() && place < entries_.size()) return *it;
  return entries_.emplace_back(Entry{phase.layer, NamedRow(phase.name)});
}

void Census::Add(const StepProfile& step) {
  ++steps_;
  rows_ += step.n_rows();
  for (size_t i = 0; i < step.phases().size(); ++i) {
    const PhaseRecord& phase = step.phases()[i];
    const PhaseTimes& first = step.times(0)[i];
    CensusRow call;
    call.calls = 1;
    call.bytes = phase.bytes;
    call.flops = phase.flops;
    call.seconds = static_cast<double>(first.leave - first.begin) * 1e-9;
    for (int tid = 0; tid < step.threads(); ++tid) {
      const PhaseTimes& t = step.times(tid)[i];
      call.wait_seconds += static_cast<double>(t.leave - t.end) * 1e-9 / step.threads();
    }
    At(i, phase).row += call;
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
