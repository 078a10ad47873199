#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

// Seconds. Steps of about 2.
constexpr double kLatencies[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                 1,     2.5,    5,     10,   25,    50,   100, 250,  500};

void Declare(const char* name, const char* type, const char* help, std::string* out) {
  *out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string EscapeLabel(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void Histogram::Add(double value, int64_t times) {
  const auto place = std::ranges::lower_bound(limits_, value) - limits_.begin();
  counts_[static_cast<size_t>(place)] += times;
  sum_ += value * static_cast<double>(times);
}

std::string Histogram::Text(const std::string& name, const std::string& labels) const {
  std::string out;
  int64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string limit = i < limits_.size() ? fmt::format("{}", limits_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, limit, total);
  }
  return out + fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, labels, sum_, total);
}

Metrics::Metrics(std::string model_name)
    : labels_(fmt::format("model_name=\"{}\"", EscapeLabel(model_name))),
      first_token_(kLatencies),
      per_token_(kLatencies),
      whole_(kLatencies) {
  for (const char* reason : {"stop", "length", "tool_calls", "error", "abort"}) ended_[reason] = 0;
}

void Metrics::FirstToken(double seconds) { first_token_.Add(seconds); }

void Metrics::MoreTokens(int64_t n, double seconds) {
  per_token_.Add(seconds / static_cast<double>(n), n);
}

void Metrics::Ended(const std::string& reason, int64_t prompt_tokens, int64_t cached_tokens,
                    int64_t completion_tokens, double seconds) {
  ++ended_[reason];
  prompt_tokens_ += prompt_tokens;
  cached_tokens_ += cached_tokens;
  completion_tokens_ += completion_tokens;
  whole_.Add(seconds);
}

std::string Metrics::Text(const EngineLoop::Stats& stats) const {
  std::string out;
  const auto number = [&](const char* name, const char* type, const char* help, auto value) {
    Declare(name, type, help, &out);
    out += fmt::format("{}{{{}}} {}\n", name, labels_, value);
  };
  const auto histogram = [&](const char* name, const char* help, const Histogram& h) {
    Declare(name, "histogram", help, &out);
    out += h.Text(name, labels_);
  };
  const Engine::Stats& e = stats.engine;
  number("vllm:num_requests_running", "gauge", "Requests that are computed.", e.n_running);
  number("vllm:num_requests_waiting", "gauge", "Requests that wait for a place.",
         e.n_waiting + stats.n_submitted);
  number("vllm:kv_cache_usage_perc", "gauge", "Share of the cache blocks in use, 0 to 1.",
         e.kv_used);
  number("vllm:num_preemptions_total", "counter", "Requests put back and computed again.",
         e.n_preemptions);
  number("vllm:prompt_tokens_total", "counter", "Prompt tokens of ended requests.", prompt_tokens_);
  number("vllm:prefix_cache_queries_total", "counter",
         "Prompt tokens looked up in the prefix cache.", prompt_tokens_);
  number("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
         cached_tokens_);
  number("vllm:generation_tokens_total", "counter", "Answer tokens of ended requests.",
         completion_tokens_);
  number("vllm:spec_decode_num_drafts_total", "counter", "Verifications of draft tokens.",
         e.n_verifications);
  number("vllm:spec_decode_num_draft_tokens_total", "counter", "Draft tokens verified.",
         e.n_drafted);
  number("vllm:spec_decode_num_accepted_tokens_total", "counter", "Draft tokens accepted.",
         e.n_accepted());
  number("deepinfer:steps_total", "counter", "Steps computed.", e.n_steps);
  number("deepinfer:rows_total", "counter", "Tokens computed in them.", e.n_rows);
  const char* ended = "vllm:request_success_total";
  Declare(ended, "counter", "Ended requests by reason.", &out);
  for (const auto& [reason, count] : ended_)
    out += fmt::format("{}{{{},finished_reason=\"{}\"}} {}\n", ended, labels_, reason, count);
  histogram("vllm:time_to_first_token_seconds", "From the request to its first token.",
            first_token_);
  histogram("vllm:inter_token_latency_seconds", "Between tokens of an answer.", per_token_);
  histogram("vllm:e2e_request_latency_seconds", "From the request to its end.", whole_);
  return out;
}

}  // namespace deepinfer
