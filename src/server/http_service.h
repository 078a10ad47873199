// Service: what the HTTP server does with a request. Internal to server/http_*.cc; all of it runs
// on the I/O thread but for what RunOnWorker is given.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sampler/sampling.h"
#include "server/api_reply.h"
#include "server/api_request.h"
#include "server/engine_loop.h"
#include "server/grammar_store.h"
#include "server/http_connection.h"
#include "server/http_inbox.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/server_log.h"

namespace deepinfer {

// Ends a request with this status and sentence.
struct HttpError {
  int status;
  std::string message;
};

class Service {
 public:
  // Requests with the engine, and their prompt tokens: what is beyond is refused, so that memory
  // stays bounded.
  static constexpr int64_t kMaxRequests = 4096;
  static constexpr int64_t kMaxPromptTokens = int64_t{64} << 20;

  // All three outlive it.
  Service(boost::asio::io_context* io, const ServerOptions& options, ServerLog* log);
  ~Service();

  // The model is there: from now on requests are served. fail: told why they no longer can be.
  void Start(std::unique_ptr<Executor> executor, std::function<void(std::string why)> fail);
  // From now on new requests are refused.
  void Stop() { stopping_ = true; }

  // Running requests end as if their clients had gone.
  void Abort();

  // Answers one request, whatever happens, and logs it.
  boost::asio::awaitable<void> Handle(HttpConnection& connection, HttpRequest request);

 private:
  friend class Answers;
  struct Place {
    std::weak_ptr<Inbox> inbox;
    int64_t choice, n_prompt;
  };
  using Awaitable = boost::asio::awaitable<void>;

  struct Endpoint {
    const char *method, *path;
    Awaitable (Service::*handler)(HttpConnection&, const HttpRequest&, RequestLog*);
    bool open;  // without a key, and while the model is loading
  };
  static const Endpoint* FindEndpoint(const std::string& path);
  static std::string AllowedMethods(const Endpoint& endpoint);
  Awaitable Route(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  void CheckLoaded() const;
  void CheckServing() const;
  void CheckKey(const HttpRequest& request) const;
  void CheckModel(const std::string& model) const;
  void Deliver(std::vector<EngineLoop::News> news);
  Awaitable Json(HttpConnection& c, int status, std::string body, RequestLog* log);

  Awaitable Options(HttpConnection& c, const HttpRequest& r, const Endpoint& endpoint,
                    RequestLog* log);

  // Endpoints.
  Awaitable ChatPage(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable Health(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable Version(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable MetricsText(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable Description(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable Models(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable Tokenize(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable Detokenize(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable Completions(HttpConnection& c, const HttpRequest& r, RequestLog* log);
  Awaitable ChatCompletions(HttpConnection& c, const HttpRequest& r, RequestLog* log);

  // `writer` makes the chunks and the whole reply of one endpoint.
  template <class Writer>
  Awaitable Generate(HttpConnection& c, const ApiRequest& api, std::vector<Request> requests,
                     Writer writer, RequestLog* log);
  struct PreparedCompletion;
  struct PreparedChat;
  PreparedCompletion PrepareCompletion(const std::string& body) const;
  PreparedChat PrepareChat(const std::string& body);
  std::string ModelsBody() const;
  std::string TokenizeBody(const std::string& body) const;
  std::string DetokenizeBody(const std::string& body) const;
  ReplyHead NewHead(const char* prefix, const std::string& model) const;
  std::vector<TokenId> EncodeText(const std::string& text, bool add_special_tokens) const;
  const Tokenizer& tokenizer() const { return executor_->tokenizer(); }

  // Runs f() on one of a few threads for what takes long: reading JSON, templates, tokenising.
  template <class F>
  boost::asio::awaitable<std::invoke_result_t<F>> RunOnWorker(F f) {
    namespace asio = boost::asio;
    co_return co_await asio::co_spawn(workers_.get_executor(), Call(std::move(f)),
                                      asio::use_awaitable);
  }
  template <class F>
  static boost::asio::awaitable<std::invoke_result_t<F>> Call(F f) {
    co_return f();
  }

  boost::asio::io_context& io_;
  const ServerOptions& options_;
  ServerLog& log_;
  Metrics metrics_;
  boost::asio::thread_pool workers_{2};
  std::unique_ptr<Executor> executor_;
  SamplingParams defaults_;
  GrammarStore grammars_;
  std::unordered_map<EngineLoop::Ticket, Place> places_;
  std::unique_ptr<EngineLoop> loop_;  // set: ready
  int64_t n_prompt_tokens_ = 0;       // of all requests in places_
  const int64_t started_;             // seconds since 1970
  bool stopping_ = false;
};

// The engine's requests of one HTTP request; those that have not ended are cancelled with it.
class Answers {
 public:
  explicit Answers(Service* service)
      : service_(*service), inbox_(std::make_shared<Inbox>(service->io_.get_executor())) {}
  ~Answers();
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  // Throws what EngineLoop::Submit throws.
  void Submit(Request request);
  const std::shared_ptr<Inbox>& inbox() const { return inbox_; }

 private:
  Service& service_;
  std::shared_ptr<Inbox> inbox_;
  std::vector<EngineLoop::Ticket> tickets_;
};

}  // namespace deepinfer
