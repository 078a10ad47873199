#include "obs/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace deepinfer {

void Trace::Add(const StepProfile& step) {
  if (start_ns_ < 0 && !step.phases().empty()) start_ns_ = step.times(0)[0].begin;
  rings_.resize(std::max(rings_.size(), static_cast<size_t>(step.threads())));
  for (int tid = 0; tid < step.threads(); ++tid) {
    Ring& ring = rings_[static_cast<size_t>(tid)];
    for (size_t i = 0; i < step.phases().size(); ++i) {
      const PhaseRecord& phase = step.phases()[i];
      const Event event{step.times(tid)[i], phase.name, phase.layer, phase.bytes};
      if (ring.events.size() < capacity_) {
        ring.events.push_back(event);
      } else {
        ring.events[ring.next] = event;
        ring.next = (ring.next + 1) % capacity_;
      }
    }
  }
}

std::string Trace::Json() const {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  auto out = std::back_inserter(json);
  const char* separator = "";
  const auto add = [&](const char* name, size_t tid, int64_t begin, int64_t end, const Event& e) {
    fmt::format_to(out,
                   "{}\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{:.3f},\"dur\":"
                   "{:.3f},\"args\":{{\"layer\":{},\"bytes\":{}}}}}",
                   separator, name, tid, static_cast<double>(begin - start_ns_) * 1e-3,
                   static_cast<double>(end - begin) * 1e-3, e.layer, e.bytes);
    separator = ",";
  };
  for (size_t tid = 0; tid < rings_.size(); ++tid) {
    const Ring& ring = rings_[tid];
    for (size_t i = 0; i < ring.events.size(); ++i) {
      const Event& e = ring.events[(ring.next + i) % ring.events.size()];
      add(e.name, tid, e.times.begin, e.times.end, e);
      add("wait", tid, e.times.end, e.times.leave, e);
    }
  }
  return json + "\n]}\n";
}

}  // namespace deepinfer
