#include "cli/timing.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {

void TimingRecorder::Add(const Delta& delta) {
  if (delta.token_ids.empty()) return;
  Times& times = times_[delta.id];
  times.last = Clock::now();
  if (times.n_tokens == 0) times.first = times.last;
  times.n_tokens += std::ssize(delta.token_ids);
}

Timing TimingRecorder::Summary(int64_t prompt_tokens) const {
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  Timing timing;
  timing.prompt_tokens = prompt_tokens;
  if (times_.empty()) return timing;
  double last_first = 0, tpot_sum = 0;
  int64_t n_tpot = 0;
  for (const auto& [id, times] : times_) {
    timing.output_tokens += times.n_tokens;
    timing.ttft_s += seconds(times.first - start_) / static_cast<double>(times_.size());
    last_first = std::max(last_first, seconds(times.first - start_));
    if (times.n_tokens < 2) continue;
    tpot_sum += seconds(times.last - times.first) / static_cast<double>(times.n_tokens - 1);
    ++n_tpot;
  }
  timing.prompt_tokens_per_s = static_cast<double>(prompt_tokens) / last_first;
  if (n_tpot > 0) timing.tpot_s = tpot_sum / static_cast<double>(n_tpot);
  return timing;
}

std::string TimingLine(const Timing& t, int64_t bytes_per_token, double read_bandwidth) {
  std::string line = fmt::format("{} prompt tokens, {:.1f} tokens/s; TTFT {:.1f} ms; TPOT ",
                                 t.prompt_tokens, t.prompt_tokens_per_s, t.ttft_s * 1e3);
  if (!t.tpot_s) return line + "- (one token)";
  line += fmt::format("{:.2f} ms ({} tokens)", *t.tpot_s * 1e3, t.output_tokens);
  if (bytes_per_token > 0) {
    const auto bytes = static_cast<double>(bytes_per_token);
    line += fmt::format("; {:.2f} MB read per token, {:.3f} of the read bandwidth of {:.1f} GB/s",
                        bytes / 1e6, bytes / *t.tpot_s / read_bandwidth, read_bandwidth / 1e9);
  }
  return line;
}

}  // namespace deepinfer
