// Requests that ask for answers: /v1/completions and /v1/chat/completions.
#include <fmt/format.h>

#include "base/error.h"
#include "chat/protocol.h"
#include "server/http_service.h"
#include "server/reply_writers.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;

// How far the answers of one HTTP request are.
class Progress {
 public:
  Progress(Metrics* metrics, const RequestLog& log, const std::vector<Request>& requests)
      : metrics_(*metrics), log_(log), n_running_(std::ssize(requests)) {
    for (const Request& request : requests) {
      // Samples of one prompt count it once.
      const bool counts = request.sampling.sample == 0;
      if (counts) usage.prompt_tokens += std::ssize(request.prompt);
      choices_.push_back({counts, 0});
    }
  }

  // Counts what is new. Throws HttpError for an answer that failed.
  void Take(const Inbox::Item& item) {
    if (!item.delta.error.empty()) throw HttpError{500, item.delta.error};
    Choice& choice = choices_[static_cast<size_t>(item.choice)];
    const int64_t n = std::ssize(item.delta.token_ids);
    const double now = log_.seconds();
    usage.completion_tokens += n;
    if (item.delta.finish) --n_running_;
    if (n == 0) return;
    const bool first = choice.last_s == 0;
    if (first && choice.counts_prompt) usage.cached_tokens += item.delta.n_cached;
    if (first) metrics_.FirstToken(now);
    const int64_t more = first ? n - 1 : n;
    if (more > 0) metrics_.MoreTokens(more, first ? 0 : now - choice.last_s);
    choice.last_s = now;
  }

  bool done() const { return n_running_ == 0; }
  Usage usage;

 private:
  struct Choice {
    bool counts_prompt;
    double last_s;  // when its last token came, since the request
  };
  Metrics& metrics_;
  const RequestLog& log_;
  int64_t n_running_;
  std::vector<Choice> choices_;
};

// Chunks as they come. What goes wrong from here on is told in the stream.
template <class Writer>
asio::awaitable<void> SendStream(HttpConnection& c, const ApiRequest& api, Inbox* inbox,
                                 Progress* progress, Writer* writer, RequestLog* log) {
  HttpHeaders headers;
  headers.emplace_back("X-Accel-Buffering", "no");
  bool open = co_await c.BeginStream(std::move(headers));
  if (open) log->status = 200;
  std::string events = writer->Begin();
  std::optional<HttpError> failure;
  while (open && !progress->done() && !failure) {
    std::vector<Inbox::Item> items = co_await inbox->Next();
    if (inbox->closed()) co_return;
    try {
      for (const Inbox::Item& item : items) {
        progress->Take(item);
        events += writer->Add(item.choice, item.delta, &progress->usage);
      }
    } catch (const HttpError& e) {
      failure = e;
      events += Event(ErrorReply(e.status, e.message));
    }
    if (progress->done() && api.include_usage) events += writer->UsageChunk(progress->usage);
    if (progress->done() || failure) events += "data: [DONE]\n\n";
    if (!events.empty()) open = co_await c.Send(std::exchange(events, {}));
  }
  if (open) co_await c.EndStream();
  if (failure) throw *failure;
}

// The whole reply; empty when the client is gone.
template <class Writer>
asio::awaitable<std::string> CollectReply(Inbox* inbox, Progress* progress, Writer* writer) {
  while (!progress->done()) {
    std::vector<Inbox::Item> items = co_await inbox->Next();
    if (inbox->closed()) co_return std::string();
    for (const Inbox::Item& item : items) {
      progress->Take(item);
      writer->Add(item.choice, item.delta, &progress->usage);
    }
  }
  co_return writer->Whole(progress->usage);
}

// n requests that differ in their draws. Refuses what would take too much memory.
void AddSamples(const Request& request, int64_t n, std::vector<Request>* out) {
  int64_t n_tokens = n * std::ssize(request.prompt);
  for (const Request& other : *out) n_tokens += std::ssize(other.prompt);
  if (n_tokens > Service::kMaxPromptTokens) {
    throw HttpError{400, fmt::format("prompt: expected at most {} tokens of all answers, found {}",
                                     Service::kMaxPromptTokens, n_tokens)};
  }
  for (int64_t k = 0; k < n; ++k) {
    out->push_back(request);
    out->back().sampling.sample = static_cast<uint32_t>(k);
  }
}

}  // namespace

template <class Writer>
asio::awaitable<void> Service::Generate(HttpConnection& c, const ApiRequest& api,
                                        std::vector<Request> requests, Writer writer,
                                        RequestLog* log) {
  log->user = api.user;
  Progress progress(&metrics_, *log, requests);
  Answers answers(this);
  for (Request& request : requests) answers.Submit(std::move(request));
  const std::shared_ptr<Inbox> inbox = answers.inbox();
  c.WatchPeer([inbox] { inbox->Close(); });
  std::exception_ptr failure;
  try {
    if (api.stream) {
      co_await SendStream(c, api, inbox.get(), &progress, &writer, log);
    } else {
      std::string body = co_await CollectReply(inbox.get(), &progress, &writer);
      if (!body.empty()) co_await Json(c, 200, std::move(body), log);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  const Usage& usage = progress.usage;
  log->prompt_tokens = usage.prompt_tokens;
  log->completion_tokens = usage.completion_tokens;
  log->finish_reason = failure ? "error" : progress.done() ? writer.finish_reason() : "abort";
  metrics_.Ended(log->finish_reason, usage.prompt_tokens, usage.cached_tokens,
                 usage.completion_tokens, log->seconds());
  if (failure) std::rethrow_exception(failure);
}

struct Service::PreparedCompletion {
  CompletionRequest request;
  std::vector<Request> engine;  // n for each prompt
  std::vector<std::string> echo;
};

Service::PreparedCompletion Service::PrepareCompletion(const std::string& body) const {
  PreparedCompletion out;
  out.request = ParseCompletionRequest(ParseJson(body, "request"), defaults_);
  CheckModel(out.request.api.model);
  for (const auto& prompt : out.request.prompts) {
    Request request = out.request.api.engine;
    const std::string* text = std::get_if<std::string>(&prompt);
    request.prompt = text != nullptr ? EncodeText(*text, out.request.add_special_tokens)
                                     : std::get<std::vector<TokenId>>(prompt);
    AddSamples(request, out.request.api.n, &out.engine);
    if (!out.request.echo) continue;
    const std::string echo =
        text != nullptr ? *text : tokenizer().Decode(request.prompt, /*skip_special=*/false);
    out.echo.resize(out.engine.size(), echo);
  }
  return out;
}

asio::awaitable<void> Service::Completions(HttpConnection& c, const HttpRequest& r,
                                           RequestLog* log) {
  PreparedCompletion p = co_await RunOnWorker([&] { return PrepareCompletion(r.body); });
  CompletionWriter writer(NewHead("cmpl-", p.request.api.model), tokenizer(), std::move(p.echo),
                          p.engine);
  co_await Generate(c, p.request.api, std::move(p.engine), std::move(writer), log);
}

struct Service::PreparedChat {
  ChatCompletionRequest request;
  std::vector<Request> engine;
};

Service::PreparedChat Service::PrepareChat(const std::string& body) {
  PreparedChat out;
  out.request = ParseChatCompletionRequest(ParseJson(body, "request"), defaults_);
  CheckModel(out.request.api.model);
  Request request = out.request.api.engine;
  request.prompt = tokenizer().EncodeSpans(RenderText(out.request.chat).spans);
  request.grammar = grammars_.Get(out.request.form);
  if (out.request.chat.thinking) request.grammar_after = tokenizer().IdOf(kThinkClose);
  AddSamples(request, out.request.api.n, &out.engine);
  return out;
}

asio::awaitable<void> Service::ChatCompletions(HttpConnection& c, const HttpRequest& r,
                                               RequestLog* log) {
  PreparedChat p = co_await RunOnWorker([&] { return PrepareChat(r.body); });
  ChatWriter writer(NewHead("chatcmpl-", p.request.api.model), tokenizer(), p.request);
  co_await Generate(c, p.request.api, std::move(p.engine), std::move(writer), log);
}

}  // namespace deepinfer
