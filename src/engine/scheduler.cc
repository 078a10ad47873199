#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace deepinfer {

Scheduler::Scheduler(KvPool* kv, int64_t max_num_batched_tokens)
    : kv_(kv), max_num_batched_tokens_(max_num_batched_tokens) {}

void Scheduler::Add(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens, bool keep) {
  DI_CHECK(!prompt.empty() && std::ssize(prompt) < max_tokens && Find(id) == nullptr)
      << "request " << id << " prompt " << prompt.size() << " most " << max_tokens;
  // The last token of an answer is never computed.
  const int64_t blocks = (max_tokens - 1 + kBlockTokens - 1) / kBlockTokens;
  if (blocks > kv_->n_blocks()) {
    throw Error(Code::kInvalid,
                fmt::format("prompt and answer: expected at most {} tokens ({} cache blocks, see "
                            "--num-kv-blocks), found {} prompt tokens and an answer of up to {}",
                            kv_->n_blocks() * kBlockTokens, kv_->n_blocks(), prompt.size(),
                            max_tokens - std::ssize(prompt)));
  }
  waiting_.push_back({id, std::move(prompt), max_tokens, keep});
}

void Scheduler::Finish(RequestId id) { Remove(id, true); }
void Scheduler::Cancel(RequestId id) { Remove(id, false); }

void Scheduler::Remove(RequestId id, bool may_keep) {
  const auto is_it = [id](const Sequence& s) { return s.id == id; };
  if (const auto it = std::ranges::find_if(running_, is_it); it != running_.end()) {
    if (may_keep && it->keep) {
      kept_.push_back(std::move(*it));
    } else {
      kv_->Close(it->slot);
    }
    running_.erase(it);
  } else {
    std::erase_if(waiting_, is_it);
  }
}

StepRecord Scheduler::Next() {
  StepRecord step;
  int64_t budget = max_num_batched_tokens_;
  const auto take = [&](const Sequence& seq, int64_t count) {
    const int64_t first = kv_->length(seq.slot);
    step.push_back({seq.id, seq.slot, first, count, first + count == std::ssize(seq.tokens)});
    budget -= count;
  };
  const auto rows = [&](const Sequence& seq) {
    return std::min(std::ssize(seq.tokens) - kv_->length(seq.slot), budget);
  };

  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const int64_t count = rows(running_[i]);
    // Without room it waits for an older one to end, and so does everybody younger.
    if (!MakeRoom(i, kv_->length(running_[i].slot) + count)) return step;
    take(running_[i], count);
  }
  while (budget > 0 && !waiting_.empty() && Admit(&waiting_.front())) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    take(running_.back(), rows(running_.back()));
  }
  DI_CHECK(!step.empty() || (running_.empty() && waiting_.empty()))
      << running_.size() << " running, " << waiting_.size() << " waiting";
  return step;
}

// Blocks for `tokens` tokens of running_[i], at the cost of kept caches and then of the youngest.
bool Scheduler::MakeRoom(size_t i, int64_t tokens) {
  while (!kv_->Reserve(running_[i].slot, tokens)) {
    if (DropKept()) continue;
    if (running_.size() == i + 1) return false;
    kv_->Close(running_.back().slot);
    waiting_.push_front(std::move(running_.back()));
    waiting_.front().slot = -1;
    running_.pop_back();
    ++n_preemptions_;
  }
  return true;
}

// Opens a slot with room for all tokens known so far, so that a prompt is not begun in vain.
bool Scheduler::Admit(Sequence* seq) {
  seq->slot = TakeKept(seq->tokens);
  while (seq->slot < 0) {
    seq->slot = kv_->Open();
    if (seq->slot < 0 && !DropKept()) return false;
  }
  while (!kv_->Reserve(seq->slot, std::ssize(seq->tokens))) {
    if (DropKept()) continue;
    kv_->Close(seq->slot);
    seq->slot = -1;
    return false;
  }
  return true;
}

// The kept caches that spare most rows, cut to the common tokens; -1 when none are of use. At least
// one row is left to compute: somebody wants its logits.
SeqSlot Scheduler::TakeKept(std::span<const TokenId> tokens) {
  int64_t longest = 0;
  auto best = kept_.end();
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const int64_t computed = kv_->length(it->slot);
    const int64_t most = std::min(computed, std::ssize(tokens) - 1);
    int64_t common = 0;
    while (common < most &&
           it->tokens[static_cast<size_t>(common)] == tokens[static_cast<size_t>(common)]) {
      ++common;
    }
    if (common > longest && computed - common <= kv_->shape().max_step_rows) {
      longest = common;
      best = it;
    }
  }
  if (best == kept_.end()) return -1;
  const SeqSlot slot = best->slot;
  kept_.erase(best);
  kv_->SetLength(slot, longest);
  return slot;
}

bool Scheduler::DropKept() {
  if (kept_.empty()) return false;
  kv_->Close(kept_.front().slot);
  kept_.erase(kept_.begin());
  return true;
}

void Scheduler::Commit(const StepRecord& step, std::span<const TokenId> sampled) {
  size_t n_sampled = 0;
  for (const ScheduledRows& rows : step) {
    const size_t sample = n_sampled;
    if (rows.samples) ++n_sampled;
    const auto seq =
        std::ranges::find_if(running_, [&](const Sequence& s) { return s.id == rows.id; });
    if (seq == running_.end()) continue;
    kv_->SetLength(rows.slot, rows.first + rows.count);
    if (!rows.samples) continue;
    seq->tokens.push_back(sampled[sample]);
    DI_CHECK(std::ssize(seq->tokens) <= seq->max_tokens) << "request " << rows.id;
  }
  DI_CHECK(n_sampled == sampled.size()) << n_sampled << " tokens, given " << sampled.size();
}

const Scheduler::Sequence* Scheduler::Find(RequestId id) const {
  const auto is_it = [id](const Sequence& s) { return s.id == id; };
  if (const auto it = std::ranges::find_if(running_, is_it); it != running_.end()) return &*it;
  if (const auto it = std::ranges::find_if(waiting_, is_it); it != waiting_.end()) return &*it;
  return nullptr;
}

const std::vector<TokenId>& Scheduler::tokens(RequestId id) const {
  const Sequence* seq = Find(id);
  DI_CHECK(seq != nullptr) << "request " << id;
  return seq->tokens;
}

int64_t Scheduler::n_computed(RequestId id) const {
  const Sequence* seq = Find(id);
  DI_CHECK(seq != nullptr) << "request " << id;
  return seq->slot < 0 ? 0 : kv_->length(seq->slot);
}

}  // namespace deepinfer
