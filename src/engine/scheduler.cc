#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace deepinfer {

namespace {

// In long prompts others may want to go on from here too.
constexpr int64_t kSnapshotTokens = 4096;

int64_t WholePages(int64_t tokens) { return tokens / kBlockTokens * kBlockTokens; }

}  // namespace

Scheduler::Scheduler(KvPool* kv, int64_t max_num_batched_tokens, int64_t prefix_cache_bytes)
    : kv_(kv), max_num_batched_tokens_(max_num_batched_tokens), prefixes_(kv, prefix_cache_bytes) {}

void Scheduler::Check(int64_t n_prompt, int64_t max_tokens) const {
  // The last token of an answer is never computed.
  const int64_t blocks = (max_tokens - 1 + kBlockTokens - 1) / kBlockTokens;
  if (blocks > kv_->n_blocks()) {
    throw Error(Code::kInvalid,
                fmt::format("prompt and answer: expected at most {} tokens ({} cache blocks, see "
                            "--num-kv-blocks), found {} prompt tokens and an answer of up to {}",
                            kv_->n_blocks() * kBlockTokens, kv_->n_blocks(), n_prompt,
                            max_tokens - n_prompt));
  }
}

void Scheduler::Add(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens) {
  DI_CHECK(!prompt.empty() && std::ssize(prompt) < max_tokens && Find(id) == nullptr)
      << "request " << id << " prompt " << prompt.size() << " most " << max_tokens;
  Check(std::ssize(prompt), max_tokens);
  const int64_t n_known = std::ssize(prompt);
  waiting_.push_back({id, std::move(prompt), n_known, max_tokens, n_known});
}

void Scheduler::Finish(RequestId id) {
  const Sequence& seq = Get(id);
  prefixes_.Publish(seq.slot, seq.tokens, WholePages(kv_->length(seq.slot)));
  Cancel(id);
}

void Scheduler::Cancel(RequestId id) {
  const auto is_it = [id](const Sequence& s) { return s.id == id; };
  if (const auto it = std::ranges::find_if(running_, is_it); it != running_.end()) {
    kv_->Close(it->slot);
    running_.erase(it);
  } else {
    std::erase_if(waiting_, is_it);
  }
}

StepRecord Scheduler::Next() {
  StepRecord step;
  int64_t budget = max_num_batched_tokens_;
  const auto take = [&](const Sequence& seq, int64_t count, int64_t n_drafts) {
    const int64_t first = kv_->length(seq.slot);
    const bool samples = first + count == seq.n_known;
    step.push_back({seq.id, seq.slot, first, count + n_drafts, samples, n_drafts});
    budget -= count + n_drafts;
  };
  const auto rows = [&](const Sequence& seq) {
    return std::min(seq.n_known - kv_->length(seq.slot), budget);
  };

  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const int64_t count = rows(running_[i]);
    // Without room it waits for an older one to end, and so does everybody younger.
    if (!MakeRoom(i, kv_->length(running_[i].slot) + count)) return step;
    take(running_[i], count, DraftRows(i, budget));
  }
  while (budget > 0 && !waiting_.empty() && Admit(&waiting_.front())) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    take(running_.back(), rows(running_.back()), 0);
  }
  DI_CHECK(!step.empty() || (running_.empty() && waiting_.empty()))
      << running_.size() << " running, " << waiting_.size() << " waiting";
  return step;
}

// How many drafts of running_[i] are verified beside its next row: no more than its answer has room
// for, and nobody younger loses a row or a block to them.
int64_t Scheduler::DraftRows(size_t i, int64_t budget) {
  const Sequence& seq = running_[i];
  if (seq.n_known - kv_->length(seq.slot) != 1) return 0;  // its prompt is not computed yet
  const int64_t younger = std::ssize(running_) - static_cast<int64_t>(i) - 1;
  int64_t n = std::min({std::ssize(seq.tokens) - seq.n_known, seq.max_tokens - seq.n_known - 1,
                        budget - 1 - younger});
  while (n > 0 && !kv_->Reserve(seq.slot, seq.n_known + n)) --n;
  return std::max<int64_t>(n, 0);
}

// Blocks for `tokens` tokens of running_[i], at the cost of what nobody uses and then of the
// youngest.
bool Scheduler::MakeRoom(size_t i, int64_t tokens) {
  while (!kv_->Reserve(running_[i].slot, tokens)) {
    if (prefixes_.Evict()) continue;
    if (running_.size() == i + 1) return false;
    kv_->Close(running_.back().slot);
    running_.back().tokens.resize(static_cast<size_t>(running_.back().n_known));
    waiting_.push_front(std::move(running_.back()));
    waiting_.front().slot = -1;
    running_.pop_back();
    ++n_preemptions_;
  }
  return true;
}

// Opens a slot with room for all tokens known so far, so that a prompt is not begun in vain, and
// with what is known of them.
bool Scheduler::Admit(Sequence* seq) {
  const SeqSlot slot = kv_->Open();
  if (slot < 0) return false;
  const PrefixCache::Hit hit = prefixes_.Match(seq->tokens);
  prefixes_.Adopt(slot, hit);
  while (!kv_->Reserve(slot, seq->n_known)) {
    if (prefixes_.Evict()) continue;
    kv_->Close(slot);
    return false;
  }
  prefixes_.Load(slot, hit);
  seq->slot = slot;
  seq->n_cached = hit.tokens;
  seq->branch = hit.known;
  return true;
}

// Remembers the states that others may go on from, out of those passed since length `before`.
void Scheduler::Publish(const Sequence& seq, int64_t before) {
  const int64_t length = kv_->length(seq.slot);
  const int64_t ends[] = {seq.branch, WholePages(seq.n_prompt - 1),
                          length / kSnapshotTokens * kSnapshotTokens};
  for (const int64_t end : ends) {
    if (before < end && end <= length) prefixes_.Publish(seq.slot, seq.tokens, end);
  }
}

double Scheduler::kv_used() const {
  const int64_t used = kv_->n_blocks() - kv_->free_blocks() - kv_->n_idle_cached();
  return static_cast<double>(used) / static_cast<double>(kv_->n_blocks());
}

void Scheduler::Commit(const StepRecord& step, std::span<const std::vector<TokenId>> emitted) {
  size_t n_sampled = 0;
  for (const ScheduledRows& rows : step) {
    const size_t sample = n_sampled;
    if (rows.samples) ++n_sampled;
    const auto seq =
        std::ranges::find_if(running_, [&](const Sequence& s) { return s.id == rows.id; });
    if (seq == running_.end()) continue;
    kv_->SetLength(rows.slot, rows.first + rows.count);
    if (!rows.samples) {
      Publish(*seq, rows.first);
      continue;
    }
    const std::vector<TokenId>& tokens = emitted[sample];
    DI_CHECK(!tokens.empty() && std::ssize(tokens) <= rows.n_drafts + 1)
        << tokens.size() << " tokens, " << rows.n_drafts << " drafts";
    // The last token is not computed yet.
    kv_->SetLength(rows.slot, rows.first + rows.count - rows.n_drafts + std::ssize(tokens) - 1);
    seq->tokens.resize(static_cast<size_t>(seq->n_known));
    seq->tokens.insert(seq->tokens.end(), tokens.begin(), tokens.end());
    seq->n_known = std::ssize(seq->tokens);
    DI_CHECK(seq->n_known <= seq->max_tokens) << "request " << rows.id;
    Publish(*seq, rows.first);
  }
  DI_CHECK(n_sampled == emitted.size()) << n_sampled << " entries, given " << emitted.size();
}

void Scheduler::SetDrafts(RequestId id, std::span<const TokenId> drafts) {
  const auto seq = std::ranges::find_if(running_, [&](const Sequence& s) { return s.id == id; });
  DI_CHECK(seq != running_.end()) << "request " << id;
  seq->tokens.resize(static_cast<size_t>(seq->n_known));
  seq->tokens.insert(seq->tokens.end(), drafts.begin(), drafts.end());
}

const Scheduler::Sequence* Scheduler::Find(RequestId id) const {
  const auto is_it = [id](const Sequence& s) { return s.id == id; };
  if (const auto it = std::ranges::find_if(running_, is_it); it != running_.end()) return &*it;
  if (const auto it = std::ranges::find_if(waiting_, is_it); it != waiting_.end()) return &*it;
  return nullptr;
}

const Scheduler::Sequence& Scheduler::Get(RequestId id) const {
  const Sequence* seq = Find(id);
  DI_CHECK(seq != nullptr) << "request " << id;
  return *seq;
}

std::span<const TokenId> Scheduler::tokens(RequestId id) const {
  return tokens_and_drafts(id).first(static_cast<size_t>(Get(id).n_known));
}

std::span<const TokenId> Scheduler::tokens_and_drafts(RequestId id) const { return Get(id).tokens; }

int64_t Scheduler::n_computed(RequestId id) const {
  const Sequence& seq = Get(id);
  return seq.slot < 0 ? 0 : kv_->length(seq.slot);
}

}  // namespace deepinfer
