#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "chat/protocol.h"

namespace deepinfer {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

Engine::Engine(Executor* executor)
    : executor_(*executor),
      scheduler_(&executor->kv(), executor->options().max_num_batched_tokens),
      model_stop_ids_{executor->config().eos_token_id, executor->config().bos_token_id} {
  // A turn of the user that the model writes itself ends its own turn.
  const std::optional<TokenId> user = executor->tokenizer().IdOf(kUserToken);
  if (user) model_stop_ids_.push_back(*user);
}

// Returns the most tokens of prompt and answer together.
int64_t Engine::CheckRequest(const Request& r) const {
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
    if (id >= 0 && id < vocab_size) continue;
    throw Error(Code::kInvalid, fmt::format("prompt: expected token ids 0 to {}, found {} at "
                                            "position {}",
                                            vocab_size - 1, id, i));
  }
  if (r.max_tokens < 0) {
    throw Error(Code::kInvalid,
                fmt::format("max_tokens: expected 0 or more, found {}", r.max_tokens));
  }
  if (r.logprobs && (*r.logprobs < 0 || *r.logprobs > kMaxTopLogprobs)) {
    throw Error(Code::kInvalid,
                fmt::format("logprobs: expected 0 to {}, found {}", kMaxTopLogprobs, *r.logprobs));
  }
  if (std::ranges::any_of(r.stop, [](const std::string& s) { return s.empty(); })) {
    throw Error(Code::kInvalid, "stop: expected texts, found an empty one");
  }
  r.sampling.Validate(vocab_size);
  const int64_t room = max_model_len - n_prompt;
  return n_prompt + (r.max_tokens == 0 ? room : std::min(r.max_tokens, room));
}

RequestId Engine::Submit(Request request) {
  const int64_t max_tokens = CheckRequest(request);
  request.sampling.seed = request.seed ? *request.seed : RandomSeed();
  if (!request.ignore_eos) {
    std::vector<TokenId>& ids = request.sampling.stop_ids;
    ids.insert(ids.end(), model_stop_ids_.begin(), model_stop_ids_.end());
  }
  const RequestId id = next_id_;
  scheduler_.Add(id, request.prompt, max_tokens, request.keep_cache);
  StopStrings stop(request.stop);
  active_.emplace(
      id, Active{std::move(request), max_tokens,
                 StreamDecoder(executor_.tokenizer(), /*skip_special=*/true), std::move(stop)});
  return next_id_++;
}

void Engine::Cancel(RequestId id) {
  scheduler_.Cancel(id);
  active_.erase(id);
}

int64_t Engine::n_computed(RequestId id) const {
  return active_.contains(id) ? scheduler_.n_computed(id) : 0;
}

Engine::Stats Engine::stats() const {
  return {scheduler_.n_running(), scheduler_.n_waiting(), scheduler_.n_preemptions(), n_steps_,
          n_rows_};
}

std::span<const float> Engine::RunStep(const StepRecord& step) {
  std::vector<SeqRows> seqs;
  for (const ScheduledRows& rows : step) {
    const std::vector<TokenId>& tokens = scheduler_.tokens(rows.id);
    seqs.push_back({.slot = rows.slot,
                    .tokens = std::span(tokens).first(static_cast<size_t>(rows.first + rows.count)),
                    .first = rows.first,
                    .n_logits = rows.samples ? 1 : 0});
    n_rows_ += rows.count;
  }
  ++n_steps_;
  return executor_.Step(seqs);
}

std::vector<Delta> Engine::Step() {
  std::vector<Delta> deltas;
  const StepRecord step = scheduler_.Next();
  if (step.empty()) return deltas;
  const auto fail = [&](RequestId id, const char* what) {
    Delta& delta = deltas.emplace_back(Delta{.id = id});
    delta.finish = FinishReason::kError;
    delta.error = what;
    Cancel(id);
  };
  std::span<const float> logits;
  try {
    logits = RunStep(step);
  } catch (const Error& e) {  // nothing was computed: everybody in the step goes
    for (const ScheduledRows& rows : step) fail(rows.id, e.what());
    return deltas;
  }

  const size_t vocab_size = static_cast<size_t>(executor_.config().vocab_size);
  std::vector<TokenId> sampled;
  for (const ScheduledRows& rows : step) {
    if (!rows.samples) continue;
    const std::span<const float> row = logits.subspan(sampled.size() * vocab_size, vocab_size);
    sampled.push_back(0);
    try {
      Delta delta{.id = rows.id};
      sampled.back() = Draw(active_.at(rows.id), row, &delta);
      deltas.push_back(std::move(delta));
    } catch (const Error& e) {
      fail(rows.id, e.what());
    }
  }
  scheduler_.Commit(step, sampled);
  for (const Delta& delta : deltas) {
    if (!delta.finish || *delta.finish == FinishReason::kError) continue;
    scheduler_.Finish(delta.id);
    active_.erase(delta.id);
  }
  return deltas;
}

// Draws the next token of a request and says what that changes.
TokenId Engine::Draw(Active& active, std::span<const float> logits, Delta* delta) {
  const Request& request = active.request;
  const std::span<const TokenId> tokens = scheduler_.tokens(delta->id);
  const size_t n_prompt = request.prompt.size();
  const TokenId token =
      Sample(logits, request.sampling, {tokens.first(n_prompt), tokens.subspan(n_prompt)},
             std::ssize(tokens), workspace_);
  delta->token_ids = {token};
  if (request.logprobs) {
    ComputeLogprobs(logits, token, *request.logprobs, &logprobs_);
    delta->logprobs = {{token, logprobs_.chosen, logprobs_.rank, logprobs_.top}};
  }

  const std::vector<TokenId>& stop_ids = request.sampling.stop_ids;
  const bool stops = std::ranges::find(stop_ids, token) != stop_ids.end();
  if (!stops) delta->text = active.stop.Push(active.decoder.Push(token));
  const bool is_last = std::ssize(tokens) + 1 == active.max_tokens;
  if (active.stop.matched() || stops)
    delta->finish = FinishReason::kStop;
  else if (is_last)
    delta->finish = FinishReason::kLength;
  if (delta->finish && !active.stop.matched()) {
    delta->text += active.stop.Push(active.decoder.Flush());
    if (active.stop.matched())
      delta->finish = FinishReason::kStop;
    else
      delta->text += active.stop.Flush();
  }
  return token;
}

}  // namespace deepinfer
