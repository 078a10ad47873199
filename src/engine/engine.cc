#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "chat/protocol.h"

namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr size_t kNoDraft = ~size_t{0};
constexpr int64_t kRowsBeforeDrafts = 16;  // last steps of a pause, which leave rows for drafts

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

Engine::Engine(Executor* executor, bool drafts)
    : executor_(*executor),
      drafts_(drafts && executor->draft_tokens() > 0),
      scheduler_(&executor->kv(), executor->options().max_num_batched_tokens,
                 executor->max_logits(), executor->options().prefix_cache_mib << 20),
      model_stop_ids_{executor->config().eos_token_id, executor->config().bos_token_id},
      depth_policy_(
          executor->options().num_speculative_tokens,
          {[executor](int64_t rows) { return executor->StepBytes(rows); }, executor->DraftBytes()}),
      chunk_policy_(executor->options().prefill_slowdown,
                    [executor](int64_t rows) { return executor->StepBytes(rows); }),
      accepted_at_(static_cast<size_t>(executor->draft_tokens())),
      depths_(accepted_at_.size() + 1) {
  if (!executor->has_tokenizer()) return;
  // A turn of the user that the model writes itself ends its own turn.
  const std::optional<TokenId> user = executor->tokenizer().IdOf(kUserToken);
  if (user) model_stop_ids_.push_back(*user);
}

void Engine::Check(const Request& r) const {
  const int64_t vocab_size = executor_.config().vocab_size;
  const int64_t max_model_len = executor_.options().max_model_len;
  const int64_t n_prompt = std::ssize(r.prompt);
  if (r.prompt.empty()) {
    throw Error(Code::kInvalid, "prompt: expected at least one token, found none");
  }
  if (n_prompt >= max_model_len) {
    throw Error(Code::kInvalid, fmt::format("prompt: expected at most {} tokens, so that one more "
                                            "fits --max-model-len {}, found {}",
                                            max_model_len - 1, max_model_len, n_prompt));
  }
  for (int64_t i = 0; i < n_prompt; ++i) {
    const TokenId id = r.prompt[static_cast<size_t>(i)];
    if (id >= 0 && id == executor_.config().image_token_id) {
      throw Error(
          Code::kUnsupported,
          fmt::format("prompt: images are not supported, found their token {} at position {}", id,
                      i));
    }
    if (id >= 0 && id < vocab_size) continue;
    throw Error(Code::kInvalid, fmt::format("prompt: expected token ids 0 to {}, found {} at "
                                            "position {}",
                                            vocab_size - 1, id, i));
  }
  if (r.max_tokens < 0) {
    throw Error(Code::kInvalid,
                fmt::format("max_tokens: expected 0 or more, found {}", r.max_tokens));
  }
  if (r.max_tokens > 0 && r.sampling.min_tokens > r.max_tokens) {
    throw Error(Code::kInvalid, fmt::format("min_tokens: expected at most max_tokens, {}, found {}",
                                            r.max_tokens, r.sampling.min_tokens));
  }
  if (r.logprobs && (*r.logprobs < 0 || *r.logprobs > kMaxTopLogprobs)) {
    throw Error(Code::kInvalid,
                fmt::format("logprobs: expected 0 to {}, found {}", kMaxTopLogprobs, *r.logprobs));
  }
  if (r.prompt_logprobs && !r.logprobs)
    throw Error(Code::kInvalid, "prompt_logprobs: expected logprobs beside it, found none");
  if (r.grammar != nullptr && (r.ignore_eos || r.sampling.min_tokens > 0)) {
    throw Error(Code::kInvalid,
                "grammar: expected an answer that may end where its grammar ends, found ignore_eos "
                "or min_tokens");
  }
  if (r.grammar != nullptr && !executor_.has_tokenizer())
    throw Error(Code::kUnsupported, "grammar: this model has no tokenizer");
  if (std::ranges::any_of(r.stop, [](const std::string& s) { return s.empty(); })) {
    throw Error(Code::kInvalid, "stop: expected texts, found an empty one");
  }
  r.sampling.Validate(vocab_size);
  scheduler_.Check(n_prompt, MostTokens(r));
}

// Of prompt and answer together.
int64_t Engine::MostTokens(const Request& r) const {
  const int64_t n_prompt = std::ssize(r.prompt);
  const int64_t room = executor_.options().max_model_len - n_prompt;
  if (r.prompt_only) return n_prompt + 1;
  return n_prompt + (r.max_tokens == 0 ? room : std::min(r.max_tokens, room));
}

RequestId Engine::Submit(Request request) {
  Check(request);
  const int64_t max_tokens = MostTokens(request);
  request.sampling.seed = request.seed ? *request.seed : RandomSeed();
  if (!request.ignore_eos) {
    std::vector<TokenId>& ids = request.sampling.stop_ids;
    ids.insert(ids.end(), model_stop_ids_.begin(), model_stop_ids_.end());
  }
  const RequestId id = next_id_;
  scheduler_.Add(id, request.prompt, max_tokens, request.prompt_logprobs);
  StopStrings stop(request.stop);
  std::optional<StreamDecoder> decoder;
  if (executor_.has_tokenizer()) decoder.emplace(executor_.tokenizer(), /*skip_special=*/true);
  active_.emplace(id,
                  Active{std::move(request), max_tokens, std::move(decoder), std::move(stop), {}});
  Active& active = active_.at(id);
  if (active.request.grammar != nullptr) StartGrammar(&active);
  return next_id_++;
}

void Engine::StartGrammar(Active* active) {
  const Request& request = active->request;
  if (trie_ == nullptr)
    trie_ = std::make_shared<const TokenTrie>(TokenTrie::FromTokenizer(executor_.tokenizer()));
  std::erase_if(masks_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<TokenMasks>& known = masks_[request.grammar.get()];
  active->masks = known.lock();
  if (active->masks == nullptr) {
    active->masks = std::make_shared<TokenMasks>(request.grammar, trie_,
                                                 std::vector{executor_.config().eos_token_id},
                                                 executor_.config().vocab_size);
    known = active->masks;
  }
  active->grammar_state = active->masks->Start();
  active->grammar_on = !request.grammar_after.has_value();
  if (!active->grammar_on && !before_grammar_) MakeBeforeGrammar();
}

// Behind an end or a call nothing would be held to the grammar.
void Engine::MakeBeforeGrammar() {
  const int64_t vocab_size = executor_.config().vocab_size;
  before_grammar_.emplace(vocab_size);
  for (TokenId id = 0; id < vocab_size; ++id) before_grammar_->Allow(id);
  for (const TokenId id : model_stop_ids_) before_grammar_->Forbid(id);
  if (const std::optional<TokenId> tags = executor_.tokenizer().IdOf(kDsmlToken))
    before_grammar_->Forbid(*tags);
}

// What may be drawn next; empty: everything.
AllowedTokens Engine::Allowed(const Active& active) {
  if (active.masks == nullptr) return {};
  return active.grammar_on ? active.masks->Mask(active.grammar_state).words()
                           : before_grammar_->words();
}

void Engine::Cancel(RequestId id) {
  scheduler_.Cancel(id);
  active_.erase(id);
}

int64_t Engine::n_computed(RequestId id) const {
  return active_.contains(id) ? scheduler_.n_computed(id) : 0;
}

Engine::Stats Engine::stats() const {
  return {scheduler_.n_running(),
          scheduler_.n_waiting(),
          scheduler_.n_preemptions(),
          scheduler_.kv_used(),
          n_steps_,
          n_rows_,
          n_verifications_,
          n_drafted_,
          accepted_at_,
          depths_,
          plain_,
          drafted_,
          drafts_s_,
          n_draft_faults_,
          draft_fault_};
}

std::optional<double> Engine::Stats::Steps::StepSeconds() const {
  if (n == 0) return std::nullopt;
  return seconds / static_cast<double>(n);
}

std::optional<double> Engine::Stats::gain() const {
  if (plain.n == 0 || drafted.n == 0) return std::nullopt;
  const double with = static_cast<double>(drafted.tokens) / (drafted.seconds + drafts_s);
  return with / (static_cast<double>(plain.tokens) / plain.seconds);
}

int64_t Engine::Stats::n_accepted() const {
  return std::accumulate(accepted_at.begin(), accepted_at.end(), int64_t{0});
}

double Engine::Stats::tokens_per_verification() const {
  if (n_verifications == 0) return 1;
  return 1 + static_cast<double>(n_accepted()) / static_cast<double>(n_verifications);
}

// Drafts of every block that are verified, when the policy has no say.
std::optional<int64_t> Engine::FixedDepth() const {
  if (planted_ != nullptr && planted_->Depth()) return planted_->Depth();
  if (executor_.options().draft_depth == "auto") return std::nullopt;
  return executor_.options().num_speculative_tokens;
}

// A draft reads the rows of the last sliding_window tokens, but those next to it matter most: it
// accepts as many drafts when the rows of a pause are missing up to the last few. So they are left
// out while drafts pause; what a draft finds in their place are rows of older tokens.
bool Engine::LeavesDraftRows(const StepRecord& step) const {
  const bool only_answers = std::ranges::all_of(
      step, [](const ScheduledRows& rows) { return rows.samples && rows.count == 1; });
  return drafts_ && !(only_answers && !FixedDepth() && depth_policy_.pause() > kRowsBeforeDrafts);
}

std::span<const float> Engine::RunStep(const StepRecord& step) {
  std::vector<SeqRows> seqs;
  for (const ScheduledRows& rows : step) {
    const std::span<const TokenId> tokens = scheduler_.tokens_and_drafts(rows.id);
    seqs.push_back({.slot = rows.slot,
                    .tokens = tokens.first(static_cast<size_t>(rows.first + rows.count)),
                    .first = rows.first,
                    .n_logits = rows.n_logits});
    n_rows_ += rows.count;
  }
  ++n_steps_;
  return executor_.Step(seqs, nullptr, LeavesDraftRows(step));
}

std::vector<Delta> Engine::Step() {
  const Clock::time_point start = Clock::now();
  std::vector<Delta> deltas;
  const StepRecord step =
      scheduler_.Next([this](int64_t answer_rows, int64_t prompt_rows, int64_t most) {
        return chunk_policy_.Rows(answer_rows, prompt_rows, most);
      });
  if (step.empty()) return deltas;
  try {
    Compute(step, &deltas);
  } catch (const Error& e) {
    if (e.code() == Code::kIo) return EndAll(e.what());
    NoteDraftFault(step, e.what());
    ComputeOneByOne(step, &deltas);
  }
  draft_s_ = drafts_ ? DraftNext(step) : 0;
  NoteChunk(step, deltas, SecondsSince(start));
  return deltas;
}

std::vector<Delta> Engine::EndAll(const std::string& why) {
  failure_ = why;
  std::vector<Delta> deltas;
  for (const auto& [id, active] : active_)
    deltas.push_back({.id = id, .finish = FinishReason::kError, .error = why});
  for (const Delta& delta : deltas) Cancel(delta.id);
  return deltas;
}

// Tells the policy what a step took, all that belongs to it included.
void Engine::NoteChunk(const StepRecord& step, std::span<const Delta> deltas, double seconds) {
  int64_t n_answers = 0, answer_rows = 0, prompt_rows = 0, n_tokens = 0;
  for (const ScheduledRows& rows : step) {
    if (rows.count > 1 + rows.n_drafts) {
      prompt_rows += rows.count;
      continue;
    }
    answer_rows += rows.count;
    ++n_answers;
    const auto delta = std::ranges::find(deltas, rows.id, &Delta::id);
    if (delta != deltas.end()) n_tokens += std::ssize(delta->token_ids);
  }
  const double tokens = static_cast<double>(std::max<int64_t>(n_tokens, 1)) /
                        static_cast<double>(std::max<int64_t>(n_answers, 1));
  chunk_policy_.Stepped(answer_rows, prompt_rows, tokens, seconds);
}

// Runs a step and takes over what it brings. Throws Error for bad bytes met by any of its rows;
// then nothing has changed.
void Engine::Compute(const StepRecord& step, std::vector<Delta>* deltas) {
  const Clock::time_point start = Clock::now();
  std::span<const float> logits = RunStep(step);
  const double step_s = SecondsSince(start);
  const auto vocab_size = static_cast<size_t>(executor_.config().vocab_size);
  std::vector<std::vector<TokenId>> emitted;
  for (const ScheduledRows& rows : step) {
    if (rows.n_logits == 0) continue;
    Delta& delta =
        deltas->emplace_back(Delta{.id = rows.id, .n_cached = scheduler_.n_cached(rows.id)});
    const size_t n = static_cast<size_t>(rows.n_logits) * vocab_size;
    const size_t n_emit = rows.samples ? (1 + static_cast<size_t>(rows.n_drafts)) * vocab_size : 0;
    Score(rows, logits.first(n - n_emit), &delta);
    if (rows.samples) emitted.push_back(Emit(rows, logits.subspan(n - n_emit, n_emit), &delta));
    logits = logits.subspan(n);
    if (delta.finish == FinishReason::kError) Cancel(rows.id);
  }
  Learn(step, emitted, step_s);
  scheduler_.Commit(step, emitted);
  for (const Delta& delta : *deltas) {
    if (!delta.finish || !active_.contains(delta.id)) continue;
    scheduler_.Finish(delta.id);
    active_.erase(delta.id);
  }
}

// A step met bad bytes: without drafts, and each sequence for itself, only those fail that need
// them.
void Engine::ComputeOneByOne(const StepRecord& step, std::vector<Delta>* deltas) {
  draft_s_ = 0;
  for (ScheduledRows rows : step) {
    rows.count -= rows.n_drafts;
    rows.n_logits -= std::exchange(rows.n_drafts, 0);
    try {
      Compute({rows}, deltas);
    } catch (const Error& e) {
      deltas->push_back({.id = rows.id, .finish = FinishReason::kError, .error = e.what()});
      Cancel(rows.id);
    }
  }
}

void Engine::NoteDraftFault(const StepRecord& step, const char* what) {
  if (std::ranges::none_of(step, [](const ScheduledRows& rows) { return rows.n_drafts > 0; }))
    return;
  ++n_draft_faults_;
  draft_fault_ = what;
}

// Log-probabilities of the prompt's tokens behind the rows that these logits are of; the last row
// that samples is not among them.
void Engine::Score(const ScheduledRows& rows, std::span<const float> logits, Delta* delta) {
  const Request& request = active_.at(rows.id).request;
  const auto vocab_size = static_cast<size_t>(executor_.config().vocab_size);
  auto next = static_cast<size_t>(rows.first + rows.count - rows.n_logits);
  try {
    for (; !logits.empty(); logits = logits.subspan(vocab_size)) {
      const TokenId token = request.prompt[++next];
      ComputeLogprobs(logits.first(vocab_size), token, *request.logprobs, &logprobs_);
      delta->prompt_logprobs.push_back({token, logprobs_.chosen, logprobs_.rank, logprobs_.top});
    }
  } catch (const Error& e) {
    delta->finish = FinishReason::kError;
    delta->error = e.what();
  }
}

// Verifies the drafts of a sequence row by row. logits [1 + n_drafts, vocabulary] of its last rows.
// Returns the tokens that its answer goes on with; a row that nothing can be drawn from ends it.
std::vector<TokenId> Engine::Emit(const ScheduledRows& rows, std::span<const float> logits,
                                  Delta* delta) {
  Active& active = active_.at(rows.id);
  const int64_t n_known = std::ssize(scheduler_.tokens(rows.id));
  const size_t vocab_size = logits.size() / (1 + static_cast<size_t>(rows.n_drafts));
  if (delta->finish) return {};  // its prompt failed
  if (active.request.prompt_only) {
    delta->finish = FinishReason::kLength;
    return {TokenId{}};  // nobody hears of it
  }
  std::vector<TokenId> emitted;
  for (size_t r = 0;; ++r) {
    const std::span<const float> row = logits.subspan(r * vocab_size, vocab_size);
    try {
      const Verdict verdict = Judge(rows, row, r);
      emitted.push_back(verdict.token);
      Tell(active, row, verdict.token, n_known + std::ssize(emitted), delta);
      if (verdict.accepted) ++accepted_at_[r];
      if (delta->finish || !verdict.accepted) break;
    } catch (const Error& e) {
      delta->finish = FinishReason::kError;
      delta->error = e.what();
      break;
    }
  }
  if (rows.n_drafts > 0) ++n_verifications_;
  n_drafted_ += rows.n_drafts;
  return emitted;
}

// What row `row` of those with logits says about the draft behind it, or the token that follows
// when there is none.
Verdict Engine::Judge(const ScheduledRows& rows, std::span<const float> logits, size_t row) {
  const Active& active = active_.at(rows.id);
  const std::span<const TokenId> all = scheduler_.tokens_and_drafts(rows.id);
  const size_t n_known = scheduler_.tokens(rows.id).size();
  // What precedes the row's token: known tokens, then accepted drafts.
  const std::span<const TokenId> tokens = all.first(n_known + row);
  if (std::cmp_greater_equal(row, rows.n_drafts)) return Draw(active, logits, tokens, kNoDraft);
  std::optional<bool> accepts;
  if (planted_ != nullptr)
    accepts = planted_->Accepts(rows.id, static_cast<int64_t>(n_known), static_cast<int64_t>(row));
  if (!accepts) return Draw(active, logits, tokens, row);
  if (*accepts) return {true, all[tokens.size()]};
  return Draw(active, logits, tokens, kNoDraft);
}

// The token behind `tokens`, and whether it is draft number `draft` of the sequence.
Verdict Engine::Draw(const Active& active, std::span<const float> logits,
                     std::span<const TokenId> tokens, size_t draft) {
  const SamplingParams& params = active.request.sampling;
  const size_t n_prompt = active.request.prompt.size();
  const History history{tokens.first(n_prompt), tokens.subspan(n_prompt)};
  const int64_t position = std::ssize(tokens);
  const AllowedTokens allowed = Allowed(active);
  const auto sample = [&] {
    const bool is_largest = params.TakesLargestLogit(std::ssize(history.output));
    const TokenId largest = is_largest ? executor_.LargestLogit(logits) : -1;
    if (largest >= 0 && Allows(allowed, static_cast<size_t>(largest))) return largest;
    return Sample(logits, params, history, position, workspace_, allowed);
  };
  if (draft == kNoDraft) return {false, sample()};
  const TokenId proposed = tokens.data()[tokens.size()];  // the drafts lie behind
  if (active.draft_logits.empty()) {
    const TokenId token = sample();
    return {token == proposed, token};
  }
  workspace_.logits.assign(logits.begin(), logits.end());
  ProcessLogits(workspace_.logits, params, history, workspace_, allowed);
  const std::span<const float> proposal =
      std::span(active.draft_logits).subspan(draft * logits.size(), logits.size());
  return VerifyDraft(workspace_.logits, proposal, proposed,
                     {params.seed, params.sample, static_cast<uint32_t>(position)});
}

// What a new token, number n_tokens of the sequence, adds to the answer.
void Engine::Tell(Active& active, std::span<const float> logits, TokenId token, int64_t n_tokens,
                  Delta* delta) {
  const Request& request = active.request;
  delta->token_ids.push_back(token);
  if (request.logprobs) {
    ComputeLogprobs(logits, token, *request.logprobs, &logprobs_);
    delta->logprobs.push_back({token, logprobs_.chosen, logprobs_.rank, logprobs_.top});
  }

  const std::vector<TokenId>& stop_ids = request.sampling.stop_ids;
  const bool stops = std::ranges::find(stop_ids, token) != stop_ids.end();
  if (active.grammar_on) {
    DI_CHECK(active.masks->Advance(token, &active.grammar_state)) << "token " << token;
  } else if (active.masks != nullptr && token == request.grammar_after) {
    active.grammar_on = true;
  }
  if (!stops && active.decoder) {
    const std::string text = active.decoder->Push(token);
    active.n_text += std::ssize(text);
    delta->text += active.stop.Push(text);
  }
  if (active.decoder) delta->text_ends.push_back(active.n_text);
  if (active.stop.matched() || stops)
    delta->finish = FinishReason::kStop;
  else if (n_tokens == active.max_tokens)
    delta->finish = FinishReason::kLength;
  if (delta->finish && active.decoder && !active.stop.matched()) {
    delta->text += active.stop.Push(active.decoder->Flush());
    if (active.stop.matched())
      delta->finish = FinishReason::kStop;
    else
      delta->text += active.stop.Flush();
  }
}

// Tells the policy what a step that only continued answers took and brought.
void Engine::Learn(const StepRecord& step, std::span<const std::vector<TokenId>> emitted,
                   double step_s) {
  int64_t n_rows = 0;
  size_t sample = 0;
  bool only_answers = true;
  for (const ScheduledRows& rows : step) {
    only_answers = only_answers && rows.samples && rows.count == 1 + rows.n_drafts;
    n_rows += rows.count;
    if (!rows.samples) continue;
    const int64_t n = std::ssize(emitted[sample++]);
    const auto active = active_.find(rows.id);
    if (rows.n_drafts > 0 && active != active_.end())
      depth_policy_.Verified(active->second.confidence, rows.n_drafts, n - 1);
  }
  if (!only_answers) return;
  Count(emitted, step_s);
  if (drafts_) depth_policy_.Stepped(std::ssize(step), n_rows, step_s, draft_s_);
}

void Engine::Count(std::span<const std::vector<TokenId>> emitted, double step_s) {
  Stats::Steps& steps = draft_s_ > 0 ? drafted_ : plain_;
  ++steps.n;
  steps.seconds += step_s;
  drafts_s_ += draft_s_;
  for (const std::vector<TokenId>& tokens : emitted) steps.tokens += std::ssize(tokens);
}

// Drafts behind every sequence of the step that goes on with its answer. Returns the seconds it
// took.
double Engine::DraftNext(const StepRecord& step) {
  if (!FixedDepth() && !depth_policy_.Drafts()) return 0;
  const bool rejection = executor_.options().speculative == "rejection";
  std::vector<DraftSeq> seqs;
  std::vector<RequestId> ids;
  for (const ScheduledRows& rows : step) {
    const auto found = active_.find(rows.id);
    if (!rows.samples || found == active_.end()) continue;
    const std::span<const TokenId> tokens = scheduler_.tokens(rows.id);
    if (found->second.max_tokens - std::ssize(tokens) < 2) continue;  // no room for a draft
    const SamplingParams& params = found->second.request.sampling;
    ids.push_back(rows.id);
    seqs.push_back({.slot = rows.slot,
                    .anchor = tokens.back(),
                    .temperature = params.EffectiveTemperature(),
                    .seed = params.seed,
                    .sample = params.sample,
                    .stream = rejection ? Stream::kDraft : Stream::kTarget});
  }
  if (seqs.empty()) return 0;
  const Clock::time_point start = Clock::now();
  Drafts drafts;
  try {
    drafts = executor_.Draft(seqs);
  } catch (const Error& e) {  // bad bytes in a draft stage: the answers need none of them
    ++n_draft_faults_;
    draft_fault_ = e.what();
    return SecondsSince(start);
  }
  const double seconds = SecondsSince(start);
  SetDrafts(drafts, seqs, ids);
  return seconds;
}

void Engine::SetDrafts(const Drafts& drafts, std::span<const DraftSeq> seqs,
                       std::span<const RequestId> ids) {
  const auto block = static_cast<size_t>(executor_.draft_tokens());
  const size_t vocab_size = drafts.logits.size() / drafts.tokens.size();
  for (size_t s = 0; planted_ != nullptr && s < seqs.size(); ++s) {
    planted_->Drafted(ids[s], std::ssize(scheduler_.tokens(ids[s])),
                      drafts.tokens.subspan(s * block, block),
                      drafts.confidence.subspan(s * block, block));
  }
  std::vector<int64_t> depths(seqs.size(), FixedDepth().value_or(0));
  if (!FixedDepth()) depth_policy_.Choose(drafts.confidence, executor_.draft_tokens(), depths);
  for (size_t s = 0; s < seqs.size(); ++s) {
    const auto depth = static_cast<size_t>(depths[s]);
    ++depths_[depth];
    Active& active = active_.at(ids[s]);
    scheduler_.SetDrafts(ids[s], drafts.tokens.subspan(s * block, depth));
    const std::span<const float> confidence = drafts.confidence.subspan(s * block, block);
    active.confidence.assign(confidence.begin(), confidence.end());
    active.draft_logits.clear();
    if (seqs[s].stream == Stream::kTarget || seqs[s].temperature == 0) continue;
    for (float logit : drafts.logits.subspan(s * block * vocab_size, depth * vocab_size))
      active.draft_logits.push_back(logit / seqs[s].temperature);
  }
}

}  // namespace deepinfer
