#include "verify/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

namespace deepinfer {

namespace {

// "all.layers.3.selected" -> "selected", "streams.4" -> "streams", "final_hidden" as it is.
std::string QuantityOf(std::string_view array) {
  if (array.starts_with("streams.")) return "streams";
  if (array.starts_with("pre.")) return "pre";
  return std::string(array.substr(array.rfind('.') + 1));
}

// The gaps that go with router choices or selections, or none.
std::span<const float> GapsOf(const GoldenSet& set, std::string name, int64_t rows) {
  for (const auto& [choice, gap] :
       {std::pair<std::string_view, std::string_view>{"selected", "index_gap"},
        {"router_ids", "router_gap"}}) {
    if (name.ends_with(choice)) name.replace(name.size() - choice.size(), choice.size(), gap);
  }
  const GoldenArray* found = set.Find(name);
  if (found == nullptr || !found->is_float || static_cast<int64_t>(found->values.size()) != rows)
    return {};
  return found->values;
}

}  // namespace

// Rounded modes hold logits and streams to their limit array by array, everything else with all
// layers and sets together: in a single array summation order alone exceeds it (attn_out of a deep
// layer by up to 0.6, where other rows were selected).
void Report::CheckFloats(const std::string& quantity, const std::string& where, ValueKind kind,
                         std::span<const float> want, std::span<const float> got) {
  const Distance d = Compare(tolerance_, kind, want, got);
  Quantity& q = quantities_[quantity];
  if (q.arrays++ == 0 || d.difference * q.worst.limit > q.worst.difference * d.limit) {
    q.worst = d;
    q.where = where;
  }
  if (!tolerance_.sharp && kind == ValueKind::kOther) {
    q.together.Add(want, got);
  } else if (d.exceeds()) {
    mismatches_.push_back(fmt::format("{}: {} {:.2e}, limit {:.2e}", where,
                                      tolerance_.sharp ? "largest difference" : "relative error",
                                      d.difference, d.limit));
  }
}

// Engram rows are the same everywhere; other choices are exact in fp32 only, but for near-ties.
void Report::CheckRows(const GoldenSet& set, const std::string& name, const GoldenArray& want,
                       const GoldenArray& got) {
  const bool hashed = name.ends_with(".engram_rows");
  const int64_t cols = hashed ? 1 : want.cols();  // one hashed row at a time, or a set of ids
  const int64_t rows = static_cast<int64_t>(want.ints.size()) / cols;
  const auto gaps =
      tolerance_.sharp && !hashed ? GapsOf(set, name, rows) : std::span<const float>();
  const int64_t differing = DifferingRows(want.ints, got.ints, cols, gaps);
  Choices& choices = choices_[QuantityOf(name)];
  choices.rows += rows;
  choices.differing += differing;
  choices.required = hashed || tolerance_.sharp;
  if (choices.required && differing > 0) {
    mismatches_.push_back(
        fmt::format("{} {}: {} of {} rows differ", set.Title(), name, differing, rows));
  }
}

void Report::CheckArray(const GoldenSet& set, const std::string& name, const GoldenArray& want,
                        const GoldenArray& got) {
  if (!want.is_float) return CheckRows(set, name, want, got);
  CheckFloats(QuantityOf(name), set.Title() + " " + name, KindOf(name), want.values, got.values);
}

void Report::CheckModel(const GoldenSet& set, const Replayed& replayed) {
  ++sets_;
  for (const auto& [name, want] : set.arrays) {
    if (IsDraftArray(name) || name == "greedy_logits" || name.ends_with("_gap")) continue;
    const auto got = replayed.arrays.find(name);
    if (got == replayed.arrays.end()) {
      mismatches_.push_back(fmt::format("{} {}: not computed", set.Title(), name));
    } else {
      CheckArray(set, name, want, got->second);
    }
  }
  CheckArgmax(set, replayed);
  CheckGreedy(set, replayed);
}

void Report::CheckArgmax(const GoldenSet& set, const Replayed& replayed) {
  for (size_t p = 0; p < set.prompt.size(); ++p) {
    if (!(set.argmax_margin[p] > tolerance_.near_tie)) continue;
    ++argmax_.compared;
    if (replayed.argmax[p] == set.argmax[p]) continue;
    ++argmax_.differing;
    if (!tolerance_.sharp) continue;  // counted over all sets
    mismatches_.push_back(fmt::format("{} argmax: position {} gives {} instead of {}, lead {:.3f}",
                                      set.Title(), p, replayed.argmax[p], set.argmax[p],
                                      set.argmax_margin[p]));
  }
}

// Up to the first token that differs: after it the texts are no longer the same.
void Report::CheckGreedy(const GoldenSet& set, const Replayed& replayed) {
  size_t same = 0;
  while (same < set.greedy.size() && replayed.greedy[same] == set.greedy[same]) ++same;
  greedy_.compared += static_cast<int64_t>(same);
  if (same < set.greedy.size()) {
    ++greedy_.compared;
    ++greedy_.differing;
    if (set.greedy_margin[same] > tolerance_.near_tie) {
      mismatches_.push_back(fmt::format("{} greedy: step {} gives {} instead of {}, lead {:.3f}",
                                        set.Title(), same, replayed.greedy[same], set.greedy[same],
                                        set.greedy_margin[same]));
    }
  }
  const GoldenArray* want = set.Find("greedy_logits");
  const auto got = replayed.arrays.find("greedy_logits");
  if (want == nullptr) return;
  if (got == replayed.arrays.end()) {
    mismatches_.push_back(set.Title() + " greedy_logits: not computed");
    return;
  }
  // Row i follows i tokens.
  const size_t rows = std::min(same + 1, static_cast<size_t>(want->rows()));
  const size_t values = rows * static_cast<size_t>(want->cols());
  CheckFloats("greedy_logits", set.Title() + " greedy_logits", ValueKind::kLogits,
              std::span(want->values).first(values), std::span(got->second.values).first(values));
}

namespace {

// Leads of the drafts of the first draft, whose logits the set has.
std::vector<float> Leads(const GoldenArray& logits) {
  std::vector<float> leads;
  for (int64_t r = 0; r < logits.rows(); ++r) {
    std::vector<float> row(logits.values.begin() + r * logits.cols(),
                           logits.values.begin() + (r + 1) * logits.cols());
    std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
    leads.push_back(row[0] - row[1]);
  }
  return leads;
}

}  // namespace

// Slot by slot up to the first that differs: it changes those behind it.
size_t Report::CheckDraft(const GoldenSet& set, const std::string& where, const GoldenDraft& want,
                          std::span<const float> margin, const GoldenDraft& got) {
  const size_t slots = want.drafts.size();
  size_t same = 0;
  while (same < slots && got.drafts[same] == want.drafts[same]) ++same;
  const size_t seen = std::min(same + 1, slots);
  drafts_.compared += static_cast<int64_t>(seen);
  if (same < slots) {
    ++drafts_.differing;
    if (margin[same] > tolerance_.near_tie) {
      mismatches_.push_back(fmt::format("{} {}: slot {} drafts {} instead of {}, lead {:.3f}",
                                        set.Title(), where, same, got.drafts[same],
                                        want.drafts[same], margin[same]));
    }
  }
  CheckFloats("draft_confidence", set.Title() + " " + where + " confidence", ValueKind::kOther,
              std::span(want.confidence).first(seen), std::span(got.confidence).first(seen));
  return seen;
}

// The rows that follow accepted tokens only: these are the greedy tokens of the set.
void Report::CheckVerified(const GoldenSet& set, const GoldenSpeculation& want,
                           std::span<const TokenId> got) {
  for (size_t r = 0; r <= static_cast<size_t>(want.accepted); ++r) {
    const size_t i = static_cast<size_t>(want.position) - set.prompt.size() + 1 + r;
    if (i >= set.greedy.size()) return;
    ++verified_.compared;
    if (got[r] == want.verified[r]) continue;
    ++verified_.differing;
    if (!(set.greedy_margin[i] > tolerance_.near_tie)) continue;
    mismatches_.push_back(
        fmt::format("{} verification at {}: row {} gives {} instead of {}, lead "
                    "{:.3f}",
                    set.Title(), want.position, r, got[r], want.verified[r], set.greedy_margin[i]));
  }
}

void Report::CheckDrafts(const GoldenSet& set, const std::vector<ReplayedDraft>& replayed) {
  const size_t expected = set.speculative.size() + (set.first_draft ? 1 : 0);
  if (replayed.size() != expected) {
    mismatches_.push_back(
        fmt::format("{} drafts: expected {}, computed {}", set.Title(), expected, replayed.size()));
    return;
  }
  size_t next = 0;
  const GoldenArray* logits = set.Find("first_draft_logits");
  if (set.first_draft) ++next;
  if (set.first_draft && logits != nullptr) {
    const ReplayedDraft& got = replayed[0];
    // A row's logits follow from the drafts before it.
    const size_t seen = CheckDraft(set, "first draft", *set.first_draft, Leads(*logits), got.draft);
    const size_t values = seen * static_cast<size_t>(logits->cols());
    CheckFloats("draft_logits", set.Title() + " first_draft_logits", ValueKind::kLogits,
                std::span(logits->values).first(values), std::span(got.logits).first(values));
  }
  for (const GoldenSpeculation& step : set.speculative) {
    const ReplayedDraft& got = replayed[next++];
    CheckDraft(set, fmt::format("draft at {}", step.position), step.draft, step.margin, got.draft);
    CheckVerified(set, step, got.verified);
  }
}

void Report::CheckLayers(const GoldenSet& set, const Replayed& replayed) {
  for (const auto& [name, want] : set.arrays) {
    const bool streams = name.starts_with("streams.") && name != "streams.0";
    if (!streams && !name.starts_with("pre.")) continue;
    const auto got = replayed.arrays.find(name);
    if (got == replayed.arrays.end()) {
      mismatches_.push_back(fmt::format("{} {}: not computed from exact input", set.Title(), name));
      continue;
    }
    const int layer = std::atoi(name.c_str() + name.find('.') + 1) - 1;
    (streams ? streams_ : pre_)[layer].Add(want.values, got->second.values);
    if (tolerance_.sharp) {
      CheckFloats("layer " + QuantityOf(name), set.Title() + " fed layer " + std::to_string(layer),
                  KindOf(name), want.values, got->second.values);
    }
  }
}

void Report::Finish() {
  const auto wrong = static_cast<double>(argmax_.differing);
  if (wrong > (1 - tolerance_.argmax_share) * static_cast<double>(argmax_.compared) &&
      !tolerance_.sharp) {
    mismatches_.push_back(fmt::format("argmax: {} of {} clear positions differ, limit {:.0f} %",
                                      argmax_.differing, argmax_.compared,
                                      100 * (1 - tolerance_.argmax_share)));
  }
  if (tolerance_.sharp) return;
  for (const auto& [name, q] : quantities_) {
    if (q.together.relative() <= q.worst.limit) continue;
    mismatches_.push_back(
        fmt::format("{}: relative error {:.2e} over all layers and sets, limit "
                    "{:.2e}; worst in {}",
                    name, q.together.relative(), q.worst.limit, q.where));
  }
  for (const auto& [layer, tally] : streams_) {
    if (tally.share() < tolerance_.layer_equal || !(tally.relative() < tolerance_.layer_relative)) {
      mismatches_.push_back(
          fmt::format("fed layer {}: {:.2f} % of the stream values equal, relative error {:.2e}; "
                      "limits {:.0f} % and {:.0e}",
                      layer, 100 * tally.share(), tally.relative(), 100 * tolerance_.layer_equal,
                      tolerance_.layer_relative));
    }
  }
  for (const auto& [layer, tally] : pre_) {
    if (!(tally.relative() < tolerance_.layer_relative)) {
      mismatches_.push_back(
          fmt::format("fed layer {}: relative error {:.2e} of the pre-mix, limit "
                      "{:.0e}",
                      layer, tally.relative(), tolerance_.layer_relative));
    }
  }
}

std::string Report::Text() const {
  std::string text = fmt::format("{:<16}{:>8}{:>12}{:>12}  worst in\n", "quantity", "arrays",
                                 tolerance_.sharp ? "difference" : "rel. error", "limit");
  for (const auto& [name, q] : quantities_) {
    const bool together = q.together.values > 0;
    text += fmt::format(
        "{:<16}{:>8}{:>12.2e}{:>12.2e}  {}\n", name, q.arrays,
        together ? q.together.relative() : q.worst.difference, q.worst.limit,
        together ? fmt::format("together; {:.2e} in {}", q.worst.difference, q.where) : q.where);
  }
  text += fmt::format("\n{:<16}{:>8}{:>12}\n", "choice", "compared", "differing");
  for (const auto& [name, c] : choices_) {
    text += fmt::format("{:<16}{:>8}{:>12}{}\n", name, c.rows, c.differing,
                        c.required ? "" : "  reported only");
  }
  text += fmt::format("{:<16}{:>8}{:>12}\n", "argmax", argmax_.compared, argmax_.differing);
  text += fmt::format("{:<16}{:>8}{:>12}\n", "greedy", greedy_.compared, greedy_.differing);
  text += fmt::format("{:<16}{:>8}{:>12}\n", "drafts", drafts_.compared, drafts_.differing);
  text += fmt::format("{:<16}{:>8}{:>12}\n", "verified", verified_.compared, verified_.differing);
  if (!tolerance_.sharp && !streams_.empty()) {
    text += fmt::format("\n{:<16}{:>8}{:>12}   limits {:.0f} % and {:.0e}\n", "fed layer", "equal",
                        "rel. error", 100 * tolerance_.layer_equal, tolerance_.layer_relative);
    for (const auto& [layer, tally] : streams_) {
      text +=
          fmt::format("{:<16}{:>6.2f} %{:>12.2e}\n", layer, 100 * tally.share(), tally.relative());
    }
  }
  text += "\n";
  constexpr size_t kMostShown = 50;
  for (size_t i = 0; i < std::min(mismatches_.size(), kMostShown); ++i)
    text += "mismatch: " + mismatches_[i] + "\n";
  if (mismatches_.size() > kMostShown)
    text += fmt::format("... and {} more\n", mismatches_.size() - kMostShown);
  return text + fmt::format("verify: {} sets, {} mismatches\n", sets_, mismatches_.size());
}

}  // namespace deepinfer
