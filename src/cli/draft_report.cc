#include "cli/draft_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace deepinfer {

using nlohmann::ordered_json;

namespace {

ordered_json OrNull(std::optional<double> value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

}  // namespace

ordered_json SpeculativeJson(const Engine::Stats& s) {
  return {{"steps", s.n_steps},           {"verifications", s.n_verifications},
          {"drafted", s.n_drafted},       {"accepted", s.n_accepted()},
          {"accepted_at", s.accepted_at}, {"tokens_per_verification", s.tokens_per_verification()},
          {"faults", s.n_draft_faults},   {"depths", s.depths},
          {"plain_steps", s.plain.n},     {"plain_step_s", OrNull(s.plain.StepSeconds())},
          {"drafted_steps", s.drafted.n}, {"drafted_step_s", OrNull(s.drafted.StepSeconds())},
          {"draft_s", s.drafts_s},        {"gain", OrNull(s.gain())}};
}

std::string SpeculativeLine(const Engine::Stats& s) {
  if (s.n_verifications == 0) return "";
  std::string line =
      fmt::format("drafts: {:.2f} tokens per verification, accepted by slot {}, chosen depths {}",
                  s.tokens_per_verification(), s.accepted_at, s.depths);
  if (const std::optional<double> with = s.drafted.StepSeconds()) {
    line += fmt::format("; step {:.2f} ms and draft {:.2f} ms", *with * 1e3,
                        s.drafts_s / static_cast<double>(s.drafted.n) * 1e3);
  }
  if (s.gain())
    line +=
        fmt::format(", plain {:.2f} ms, gain {:.2f} x", *s.plain.StepSeconds() * 1e3, *s.gain());
  return line + "\n";
}

}  // namespace deepinfer
