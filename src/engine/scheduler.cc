#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace deepinfer {

namespace {

// In long prompts others may want to go on from here too.
constexpr int64_t kSnapshotTokens = 4096;

int64_t WholePages(int64_t tokens) { return tokens / kBlockTokens * kBlockTokens; }

}  // namespace

Scheduler::Scheduler(KvPool* kv, int64_t max_num_batched_tokens, int64_t max_logits,
                     int64_t prefix_cache_bytes)
    : kv_(kv),
      max_num_batched_tokens_(max_num_batched_tokens),
      max_logits_(max_logits),
      prefixes_(kv, prefix_cache_bytes) {}

void Scheduler::Check(int64_t n_prompt, int64_t max_tokens) const {
  // The last token of an answer is never computed.
  const int64_t blocks = BlocksFor(max_tokens - 1);
  if (blocks > kv_->n_blocks()) {
    throw Error(Code::kInvalid,
                fmt::format("prompt and answer: expected at most {} tokens ({} cache blocks, see "
                            "--num-kv-blocks), found {} prompt tokens and an answer of up to {}",
                            kv_->n_blocks() * kBlockTokens, kv_->n_blocks(), n_prompt,
                            max_tokens - n_prompt));
  }
}

void Scheduler::Add(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens, bool scores) {
  DI_CHECK(!prompt.empty() && std::ssize(prompt) < max_tokens && Find(id) == nullptr)
      << "request " << id << " prompt " << prompt.size() << " most " << max_tokens;
  Check(std::ssize(prompt), max_tokens);
  const int64_t n_known = std::ssize(prompt);
  waiting_.push_back(
      {id, std::move(prompt), n_known, max_tokens, n_known, scores ? 0 : n_known - 1});
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

StepRecord Scheduler::Next(const ChunkLimit& limit) {
  StepRecord step;
  int64_t budget = max_num_batched_tokens_;
  std::vector<size_t> prompts = TakeAnswers(&budget, &step);
  while (AdmitFirst()) prompts.push_back(running_.size() - 1);
  int64_t rows = 0;
  for (const size_t i : prompts) rows += Left(running_[i]);
  const int64_t most = std::min(rows, budget);
  if (most > 0) {
    const int64_t chunk = limit ? limit(max_num_batched_tokens_ - budget, rows, budget) : most;
    TakeChunk(prompts, std::min(chunk, most), &step);
  }
  DI_CHECK(!step.empty() || (running_.empty() && waiting_.empty()))
      << running_.size() << " running, " << waiting_.size() << " waiting";
  return step;
}

void Scheduler::Take(const Sequence& seq, int64_t count, int64_t n_drafts, StepRecord* step) const {
  const int64_t first = kv_->length(seq.slot);
  const int64_t end = first + count;
  const int64_t n_logits = std::max(end - std::max(first, seq.n_silent), int64_t{0}) + n_drafts;
  const bool samples = end == seq.n_known;
  step->push_back({seq.id, seq.slot, first, count + n_drafts, samples, n_drafts, n_logits});
}

// Rows of all whose last token alone is not in the caches. Returns which others are running.
std::vector<size_t> Scheduler::TakeAnswers(int64_t* budget, StepRecord* step) {
  std::vector<size_t> prompts;
  for (size_t i = 0; i < running_.size() && *budget > 0; ++i) {
    if (Left(running_[i]) > 1) {
      prompts.push_back(i);
      continue;
    }
    // Without room it waits for an older one to end; it is the youngest.
    if (!MakeRoom(i, running_[i].n_known)) break;
    const int64_t n_drafts = DraftRows(i, *budget);
    Take(running_[i], 1, n_drafts, step);
    *budget -= 1 + n_drafts;
  }
  return prompts;
}

// Shares `rows` rows out to these of the running; all blocks are there. Each may have the logits of
// one row, what is left of max_logits_ goes to the oldest that want more.
void Scheduler::TakeChunk(std::span<const size_t> prompts, int64_t rows, StepRecord* step) {
  std::vector<int64_t> left, counts(prompts.size());
  int64_t logits = max_logits_ - std::ssize(prompts);
  for (const ScheduledRows& answer : *step) logits -= answer.n_logits;
  for (const size_t i : prompts) {
    Sequence& seq = running_[i];
    if (kv_->length(seq.slot) == seq.n_found) LookAgain(&seq);
    const int64_t free = std::max(seq.n_silent - kv_->length(seq.slot), int64_t{0}) + 1;
    left.push_back(std::min(Left(seq), free + logits));
    logits -= std::max(left.back() - free, int64_t{0});
  }
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t p) { return left[p]; });
  int64_t shared = rows / 2;
  for (const size_t p : order) {
    if (2 * left[p] > left[0]) break;
    counts[p] = std::min(left[p], shared);
    shared -= counts[p];
    rows -= counts[p];
  }
  for (size_t p = 0; p < prompts.size(); ++p) {
    const int64_t more = std::min(left[p] - counts[p], rows);
    rows -= more;
    if (counts[p] + more > 0) Take(running_[prompts[p]], counts[p] + more, 0, step);
  }
}

// How many drafts of running_[i] are verified beside its next row: no more than its answer has room
// for, and nobody younger loses a row or a block to them.
int64_t Scheduler::DraftRows(size_t i, int64_t budget) {
  const Sequence& seq = running_[i];
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
    PutBack();
  }
  return true;
}

// The youngest gives up its place. Its caches are remembered up to the last whole page, and up to
// the first page whose state is still there: then not all goes when somebody needs blocks.
void Scheduler::PutBack() {
  Sequence& seq = running_.back();
  const int64_t end = WholePages(kv_->length(seq.slot));
  int64_t first = end;
  while (first > kBlockTokens && kv_->CanRollBack(seq.slot, first - kBlockTokens))
    first -= kBlockTokens;
  prefixes_.Publish(seq.slot, seq.tokens, first);
  prefixes_.Publish(seq.slot, seq.tokens, end);
  kv_->Close(seq.slot);
  seq.slot = -1;
  seq.tokens.resize(static_cast<size_t>(seq.n_known));
  seq.was_preempted = true;
  waiting_.push_front(std::move(seq));
  running_.pop_back();
  ++n_preemptions_;
}

// The first one that waits gets a place, if there is one.
bool Scheduler::AdmitFirst() {
  if (waiting_.empty() || std::ssize(running_) == kv_->max_seqs()) return false;
  Sequence& seq = waiting_.front();
  const Refusal now = {seq.id, kv_->free_blocks() + kv_->n_idle_cached(), prefixes_.n_published()};
  if (refusal_.id == now.id && now.blocks <= refusal_.blocks &&
      now.n_published == refusal_.n_published) {
    return false;
  }
  if (!Place(&seq)) {
    refusal_ = now;
    return false;
  }
  running_.push_back(std::move(seq));
  waiting_.pop_front();
  return true;
}

// What others have computed of it, up to the first row whose logits are wanted.
PrefixCache::Hit Scheduler::Match(const Sequence& seq) const {
  return prefixes_.Match(std::span(seq.tokens).first(static_cast<size_t>(seq.n_silent) + 1));
}

// Opens a slot with blocks for all tokens known so far, so that a prompt is not begun in vain, and
// with what is known of them. false: there are not as many blocks; nothing has changed.
bool Scheduler::Place(Sequence* seq) {
  const PrefixCache::Hit hit = Match(*seq);
  const int64_t blocks = BlocksFor(seq->n_known);
  const int64_t others_idle = kv_->n_idle_cached() - hit.n_idle;
  if (blocks - hit.tokens / kBlockTokens > kv_->free_blocks() + others_idle) return false;
  seq->slot = kv_->Open();
  prefixes_.Adopt(seq->slot, hit);
  while (!kv_->Reserve(seq->slot, seq->n_known))
    DI_CHECK(prefixes_.Evict()) << "request " << seq->id;
  prefixes_.Load(seq->slot, hit);
  if (!seq->was_preempted) seq->n_cached = hit.tokens;
  seq->branch = hit.known;
  seq->n_found = hit.tokens;
  seq->n_published = prefixes_.n_published();
  return true;
}

// Of a sequence of which nothing was computed since it got its place: others may have computed more
// of its tokens meanwhile.
void Scheduler::LookAgain(Sequence* seq) {
  if (seq->n_published == prefixes_.n_published()) return;
  seq->n_published = prefixes_.n_published();
  if (Match(*seq).tokens <= seq->n_found) return;
  kv_->Close(seq->slot);
  DI_CHECK(Place(seq)) << "request " << seq->id;
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
      seq->n_silent = std::max(seq->n_silent, rows.first + rows.count);
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
    seq->n_silent = seq->n_known - 1;
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
