#include "verify/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

#include "base/check.h"
#include "base/error.h"

namespace deepinfer {

namespace {

// One sequence of the executor, closed at the end.
class OpenSequence {
 public:
  explicit OpenSequence(Executor& executor, int64_t max_tokens)
      : executor_(executor), slot_(executor.kv().Open()) {
    DI_CHECK(slot_ >= 0 && executor.kv().Reserve(slot_, max_tokens)) << max_tokens << " tokens";
  }
  ~OpenSequence() { executor_.kv().Close(slot_); }
  OpenSequence(const OpenSequence&) = delete;
  OpenSequence& operator=(const OpenSequence&) = delete;

  SeqSlot slot() const { return slot_; }
  // Takes back what follows the first `tokens` tokens.
  void Rollback(int64_t tokens) { executor_.kv().SetLength(slot_, tokens); }

  // Computes positions [length, tokens.size()) and returns their logits.
  std::span<const float> Extend(std::span<const TokenId> tokens, const ProbeFn* observer) {
    const int64_t first = executor_.kv().length(slot_);
    const int64_t end = static_cast<int64_t>(tokens.size());
    const SeqRows rows{slot_, tokens, first, end - first};
    const std::span<const float> logits = executor_.Step({&rows, 1}, observer);
    executor_.kv().SetLength(slot_, end);
    return logits;
  }

 private:
  Executor& executor_;
  const SeqSlot slot_;
};

TokenId Argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// "streams.12" with prefix "streams." -> 12.
std::optional<int> NumberAfter(std::string_view name, std::string_view prefix) {
  int number = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// The probe that shows a golden array. What layer L leaves enters layer L + 1: its output is looked
// at before anyone overwrites the streams.
std::string ProbeOf(std::string_view array) {
  if (const auto layer = NumberAfter(array, "streams."); layer && *layer > 0)
    return fmt::format("layers.{}.output", *layer - 1);
  if (const auto layer = NumberAfter(array, "pre."); layer && *layer > 0)
    return fmt::format("layers.{}.ffn_pre", *layer - 1);
  if (array.starts_with("all.")) return std::string(array.substr(4));
  return std::string(array);
}

std::string RowText(int64_t cols, bool is_float) {
  return fmt::format("rows of {} {}", cols, is_float ? "floats" : "integers");
}

// Copies probe rows to the arrays of a set. Called between the phases of a step.
class Collector {
 public:
  Collector(const GoldenSet& set, const std::function<bool(std::string_view)>& wanted) {
    const int64_t length = static_cast<int64_t>(set.prompt.size());
    for (const auto& [name, golden] : set.arrays) {
      if (!wanted(name)) continue;
      const bool all =
          name.starts_with("all.") || name.starts_with("streams.") || name.starts_with("pre.");
      Target& target = by_probe_.emplace(ProbeOf(name), Target{name, golden, {}, 0, {}})->second;
      if (!all) target.positions = set.kept_positions;
      for (int64_t p = 0; all && p < length; ++p) target.positions.push_back(p);
    }
  }

  // `first` is the position of the row 0 of the step.
  void Look(const Probe& probe, int64_t first) {
    if (probe.name.ends_with(".n_selected")) n_selected_ = static_cast<const int32_t*>(probe.data);
    const auto [begin, end] = by_probe_.equal_range(probe.name);
    for (auto it = begin; it != end; ++it) Copy(probe, first, &it->second);
  }

  // Arrays all of whose rows were seen.
  std::map<std::string, GoldenArray, std::less<>> Take(const GoldenSet& set) {
    std::map<std::string, GoldenArray, std::less<>> arrays;
    for (auto& [probe, target] : by_probe_) {
      if (!target.computed_as.empty()) {
        throw Error(Code::kCorrupt,
                    fmt::format("golden set {}: {}: expected {} as this model computes, found {}",
                                set.Title(), target.name, target.computed_as,
                                RowText(target.got.cols(), target.got.is_float)));
      }
      if (target.rows_seen == target.got.rows()) arrays.emplace(target.name, std::move(target.got));
    }
    return arrays;
  }

 private:
  struct Target {
    std::string name;
    GoldenArray got;  // begins as a copy of the golden array: it has the right shape and type
    std::vector<int64_t> positions;
    int64_t rows_seen = 0;
    std::string computed_as;  // rows of the probe, when they are not those of the array
  };

  void Copy(const Probe& probe, int64_t first, Target* target) {
    const int64_t cols = target->got.cols();
    const bool is_float = probe.type == Probe::Type::kF32;
    if (cols != probe.cols || target->got.is_float != is_float) {
      target->computed_as = RowText(probe.cols, is_float);
      return;
    }
    const auto begin = std::lower_bound(target->positions.begin(), target->positions.end(), first);
    for (auto p = begin; p != target->positions.end() && *p < first + *probe.n_rows; ++p) {
      const int64_t to = (p - target->positions.begin()) * cols, row = *p - first;
      if (target->got.is_float) {
        std::copy_n(static_cast<const float*>(probe.data) + row * cols, cols,
                    target->got.values.begin() + to);
      } else {
        CopyInts(probe, row, target->got.ints.data() + to);
      }
      ++target->rows_seen;
    }
  }

  // Behind the valid part of a selection stand -1.
  void CopyInts(const Probe& probe, int64_t row, int64_t* to) const {
    int64_t valid = probe.cols;
    if (probe.name.ends_with(".selected")) valid = n_selected_[row];
    for (int64_t c = 0; c < probe.cols; ++c) {
      const int64_t at = row * probe.cols + c;
      const int64_t value = probe.type == Probe::Type::kI64
                                ? static_cast<const int64_t*>(probe.data)[at]
                                : static_cast<const int32_t*>(probe.data)[at];
      to[c] = c < valid ? value : -1;
    }
  }

  std::multimap<std::string, Target, std::less<>> by_probe_;
  const int32_t* n_selected_ = nullptr;  // of the newest selection
};

// Replaces what enters a layer by what the golden set says: probes "streams.L" and "pre.L".
void Feed(const GoldenSet& set, const Probe& probe, int64_t first) {
  const GoldenArray* exact = set.Find(probe.name);
  if (exact == nullptr || !(probe.name.starts_with("streams.") || probe.name.starts_with("pre.")))
    return;
  if (!exact->is_float || exact->cols() != probe.cols) return;  // the collector reports it
  std::copy_n(exact->values.begin() + first * probe.cols, *probe.n_rows * probe.cols,
              static_cast<float*>(probe.data));
}

// Calls run(first, end) for each piece of a prompt.
template <class Run>
void ForEachChunk(int64_t length, int64_t chunk, Run run) {
  const int64_t size = chunk > 0 ? chunk : length;
  for (int64_t first = 0; first < length; first += size) run(first, std::min(length, first + size));
}

void DecodeGreedily(OpenSequence* sequence, const GoldenSet& set, std::vector<float> logits,
                    Replayed* out) {
  std::vector<TokenId> tokens = set.prompt;
  const size_t steps = set.greedy.size();
  const GoldenArray* golden_rows = set.Find("greedy_logits");
  GoldenArray rows;
  if (golden_rows != nullptr) rows = {golden_rows->shape, true, {}, {}};
  for (size_t i = 0; i < steps; ++i) {
    if (golden_rows != nullptr && static_cast<int64_t>(i) < rows.rows())
      rows.values.insert(rows.values.end(), logits.begin(), logits.end());
    out->greedy.push_back(Argmax(logits));
    if (i + 1 == steps) break;
    tokens.push_back(out->greedy.back());
    const std::span<const float> next = sequence->Extend(tokens, nullptr);
    logits.assign(next.begin(), next.end());
  }
  if (golden_rows != nullptr && rows.values.size() == golden_rows->values.size())
    out->arrays.emplace("greedy_logits", std::move(rows));
}

}  // namespace

bool IsDraftArray(std::string_view array) { return array == "first_draft_logits"; }

Replayed ReplayModel(Executor& executor, const GoldenSet& set, int64_t chunk) {
  const int64_t length = static_cast<int64_t>(set.prompt.size());
  const int64_t vocab = executor.config().vocab_size;
  OpenSequence sequence(executor, length + static_cast<int64_t>(set.greedy.size()));
  Collector collector(set, [](std::string_view array) {
    return !IsDraftArray(array) && array != "greedy_logits" && !array.ends_with("_gap");
  });
  Replayed out;
  std::vector<float> last;
  ForEachChunk(length, chunk, [&](int64_t first, int64_t end) {
    const ProbeFn observer = [&](const Probe& probe) { collector.Look(probe, first); };
    const auto tokens = std::span(set.prompt).first(static_cast<size_t>(end));
    const std::span<const float> logits = sequence.Extend(tokens, &observer);
    for (int64_t r = 0; r < end - first; ++r) {
      out.argmax.push_back(
          Argmax(logits.subspan(static_cast<size_t>(r * vocab), static_cast<size_t>(vocab))));
    }
    const auto row = logits.last(static_cast<size_t>(vocab));
    last.assign(row.begin(), row.end());
  });
  out.arrays = collector.Take(set);
  DecodeGreedily(&sequence, set, std::move(last), &out);
  return out;
}

Replayed ReplayLayers(Executor& executor, const GoldenSet& set, int64_t chunk) {
  const int64_t length = static_cast<int64_t>(set.prompt.size());
  OpenSequence sequence(executor, length);
  Collector collector(set, [](std::string_view array) {
    return (array.starts_with("streams.") && array != "streams.0") || array.starts_with("pre.");
  });
  ForEachChunk(length, chunk, [&](int64_t first, int64_t end) {
    const ProbeFn observer = [&](const Probe& probe) {
      collector.Look(probe, first);
      Feed(set, probe, first);
    };
    sequence.Extend(std::span(set.prompt).first(static_cast<size_t>(end)), &observer);
  });
  Replayed out;
  out.arrays = collector.Take(set);
  return out;
}

namespace {

// All blocks of the set are as long as those of this model.
void CheckBlocks(const Executor& executor, const GoldenSet& set) {
  const int64_t block = executor.draft_tokens(), vocab = executor.config().vocab_size;
  const auto check = [&](const char* what, int64_t expected, int64_t found) {
    if (found == expected) return;
    throw Error(Code::kCorrupt, fmt::format("golden set {}: {}: expected {} as this model drafts, "
                                            "found {}",
                                            set.Title(), what, expected, found));
  };
  if (set.first_draft) check("first_draft.drafts", block, std::ssize(set.first_draft->drafts));
  for (const GoldenSpeculation& step : set.speculative)
    check("speculative.steps.drafts", block, std::ssize(step.draft.drafts));
  if (const GoldenArray* logits = set.Find("first_draft_logits"); logits != nullptr) {
    check("first_draft_logits rows", block, logits->rows());
    check("first_draft_logits columns", vocab, logits->cols());
  }
}

ReplayedDraft DraftBehind(Executor& executor, const OpenSequence& sequence, TokenId anchor) {
  const DraftSeq seq{.slot = sequence.slot(),
                     .anchor = anchor,
                     .temperature = 0,
                     .seed = 0,
                     .sample = 0,
                     .stream = Stream::kDraft};
  const Drafts drafts = executor.Draft({&seq, 1});
  return {{anchor,
           {drafts.tokens.begin(), drafts.tokens.end()},
           {drafts.confidence.begin(), drafts.confidence.end()}},
          {drafts.logits.begin(), drafts.logits.end()},
          {}};
}

}  // namespace

std::vector<ReplayedDraft> ReplayDrafts(Executor& executor, const GoldenSet& set, int64_t chunk) {
  CheckBlocks(executor, set);
  std::vector<TokenId> tokens = set.prompt;
  const int64_t length = std::ssize(tokens), block = executor.draft_tokens();
  const auto vocab = static_cast<size_t>(executor.config().vocab_size);
  const int64_t end = set.speculative.empty() ? length : set.speculative.back().position;
  OpenSequence sequence(executor, end + block + 1);
  ForEachChunk(length, chunk, [&](int64_t, int64_t last) {
    sequence.Extend(std::span(tokens).first(static_cast<size_t>(last)), nullptr);
  });
  std::vector<ReplayedDraft> out;
  if (set.first_draft) out.push_back(DraftBehind(executor, sequence, set.first_draft->anchor));
  for (const GoldenSpeculation& step : set.speculative) {
    out.push_back(DraftBehind(executor, sequence, step.draft.anchor));
    tokens.push_back(step.draft.anchor);
    tokens.insert(tokens.end(), step.draft.drafts.begin(), step.draft.drafts.end());
    const std::span<const float> logits = sequence.Extend(tokens, nullptr);
    for (size_t r = 0; r <= step.draft.drafts.size(); ++r)
      out.back().verified.push_back(Argmax(logits.subspan(r * vocab, vocab)));
    tokens.resize(static_cast<size_t>(step.position + 1 + step.accepted));
    sequence.Rollback(std::ssize(tokens));
  }
  return out;
}

}  // namespace deepinfer
