#include "server/http_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/render.h"
#include "config/generation_config.h"
#include "server/chat_page.h"
#include "server/openapi.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
using nlohmann::ordered_json;

int StatusOf(const Error& error) { return error.code() == Code::kNotFound ? 404 : 400; }

// Compares without telling by its time how much is right.
bool SameSecret(std::string_view a, std::string_view b) {
  unsigned char different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    different = static_cast<unsigned char>(different | (a[i] ^ b[i]));
  return different == 0;
}

}  // namespace

Service::Service(asio::io_context* io, const ServerOptions& options, ServerLog* log)
    : io_(*io),
      options_(options),
      log_(*log),
      metrics_(options.served_model_names.at(0)),
      started_(std::time(nullptr)) {}

Service::~Service() { workers_.join(); }

void Service::Start(std::unique_ptr<Executor> executor, std::function<void(std::string why)> fail) {
  executor_ = std::move(executor);
  defaults_ =
      DefaultSampling(GenerationConfig::Load(executor_->model_dir() + "/generation_config.json"));
  loop_ = std::make_unique<EngineLoop>(
      executor_.get(),
      [this](std::vector<EngineLoop::News> news) {
        asio::post(io_, [this, news = std::move(news)]() mutable { Deliver(std::move(news)); });
      },
      [this, fail = std::move(fail)](const std::string& why) {
        asio::post(io_, [fail, why] { fail(why); });
      });
}

void Service::Deliver(std::vector<EngineLoop::News> news) {
  for (EngineLoop::News& n : news) {
    const auto place = places_.find(n.ticket);
    if (place == places_.end()) continue;  // it was cancelled meanwhile
    if (const std::shared_ptr<Inbox> inbox = place->second.inbox.lock())
      inbox->Put(place->second.choice, std::move(n.delta));
  }
}

void Service::Abort() {
  for (const auto& [ticket, place] : places_) {
    if (const std::shared_ptr<Inbox> inbox = place.inbox.lock()) inbox->Close();
  }
}

void Answers::Submit(Request request) {
  const auto refuse = [](const char* what, int64_t most, int64_t found) {
    throw HttpError{503, fmt::format("the server is busy: expected at most {} {}, found {}", most,
                                     what, found)};
  };
  const int64_t n_prompt = std::ssize(request.prompt);
  const int64_t n_requests = std::ssize(service_.places_) + 1;
  const int64_t n_tokens = service_.n_prompt_tokens_ + n_prompt;
  if (n_requests > Service::kMaxRequests)
    refuse("answers at once", Service::kMaxRequests, n_requests);
  if (n_tokens > Service::kMaxPromptTokens)
    refuse("prompt tokens at once", Service::kMaxPromptTokens, n_tokens);
  const EngineLoop::Ticket ticket = service_.loop_->Submit(std::move(request));
  service_.places_[ticket] = {inbox_, std::ssize(tickets_), n_prompt};
  service_.n_prompt_tokens_ += n_prompt;
  tickets_.push_back(ticket);
}

Answers::~Answers() {
  for (const EngineLoop::Ticket ticket : tickets_) {
    const auto place = service_.places_.find(ticket);
    service_.n_prompt_tokens_ -= place->second.n_prompt;
    service_.places_.erase(place);
    service_.loop_->Cancel(ticket);  // nothing when it has ended
  }
}

asio::awaitable<void> Service::Handle(HttpConnection& c, HttpRequest request) {
  RequestLog log{.id = request.request_id, .method = request.method, .path = request.path};
  std::optional<HttpError> failure;
  try {
    co_await Route(c, request, &log);
  } catch (const HttpError& e) {
    failure = e;
  } catch (const Error& e) {
    failure = HttpError{StatusOf(e), e.what()};
  } catch (const std::bad_alloc&) {
    failure = HttpError{500, "out of memory"};
  } catch (const std::exception& e) {
    failure = HttpError{500, e.what()};
  }
  if (failure && !c.began())
    co_await Json(c, failure->status, ErrorReply(failure->status, failure->message), &log);
  if (options_.log_requests) log_.Request(log);
}

asio::awaitable<void> Service::Json(HttpConnection& c, int status, std::string body,
                                    RequestLog* log) {
  log->status = status;
  HttpHeaders headers;
  if (status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 503) headers.emplace_back("Retry-After", "5");
  co_await c.Reply(status, "application/json", std::move(body), std::move(headers));
}

void Service::CheckLoaded() const {
  if (loop_ == nullptr) throw HttpError{503, "the model is still loading"};
}

void Service::CheckServing() const {
  CheckLoaded();
  if (stopping_) throw HttpError{503, "the server is stopping"};
}

void Service::CheckKey(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.authorization;
  bool good = false;
  for (const std::string& key : options_.api_keys)
    good |= given.starts_with(kBearer) && SameSecret(given.substr(kBearer.size()), key);
  if (!good) {
    throw HttpError{401, fmt::format("Authorization: expected \"Bearer\" and a key of this server, "
                                     "found {}",
                                     given.empty() ? "none" : "another value")};
  }
}

void Service::CheckModel(const std::string& model) const {
  const std::vector<std::string>& names = options_.served_model_names;
  if (model.empty() || std::ranges::find(names, model) != names.end()) return;
  throw HttpError{404, fmt::format("model: expected {}, found {}", names[0], model.substr(0, 100))};
}

const Service::Endpoint* Service::FindEndpoint(const std::string& path) {
  static constexpr Endpoint kEndpoints[] = {
      {"GET", "/", &Service::ChatPage, true},
      {"GET", "/health", &Service::Health, true},
      {"GET", "/version", &Service::Version, true},
      {"GET", "/metrics", &Service::MetricsText, true},
      {"GET", "/openapi.json", &Service::Description, true},
      {"GET", "/v1/models", &Service::Models, false},
      {"POST", "/v1/completions", &Service::Completions, false},
      {"POST", "/v1/chat/completions", &Service::ChatCompletions, false},
      {"POST", "/tokenize", &Service::Tokenize, false},
      {"POST", "/detokenize", &Service::Detokenize, false},
  };
  const auto found = std::ranges::find_if(
      kEndpoints, [&](const Endpoint& endpoint) { return path == endpoint.path; });
  return found == std::end(kEndpoints) ? nullptr : found;
}

std::string Service::AllowedMethods(const Endpoint& endpoint) {
  const bool get = endpoint.method == std::string_view("GET");
  return get ? "GET, HEAD, OPTIONS" : fmt::format("{}, OPTIONS", endpoint.method);
}

// Also what browsers ask for before a request of another origin's page. Without a key: they send
// none then.
asio::awaitable<void> Service::Options(HttpConnection& c, const HttpRequest& r,
                                       const Endpoint& endpoint, RequestLog* log) {
  log->status = 204;
  HttpHeaders headers;
  headers.emplace_back("Allow", AllowedMethods(endpoint));
  if (!r.asked_method.empty()) {
    headers.emplace_back("Access-Control-Allow-Methods", AllowedMethods(endpoint));
    headers.emplace_back("Access-Control-Max-Age", "600");
  }
  if (!r.asked_headers.empty())
    headers.emplace_back("Access-Control-Allow-Headers", r.asked_headers);
  co_await c.Reply(204, "", "", std::move(headers));
}

asio::awaitable<void> Service::Route(HttpConnection& c, const HttpRequest& r, RequestLog* log) {
  const Endpoint* found = FindEndpoint(r.path);
  if (found == nullptr)
    throw HttpError{404, fmt::format("{}: there is no such endpoint", r.path.substr(0, 100))};
  if (r.method == "OPTIONS") co_return co_await Options(c, r, *found, log);
  const bool head = r.method == "HEAD" && found->method == std::string_view("GET");
  if (r.method != found->method && !head) {
    log->status = 405;
    std::string body = ErrorReply(
        405, fmt::format("{}: expected method {}, found {}", r.path, found->method, r.method));
    HttpHeaders headers;
    headers.emplace_back("Allow", AllowedMethods(*found));
    co_await c.Reply(405, "application/json", std::move(body), std::move(headers));
    co_return;
  }
  if (!found->open) {
    CheckKey(r);
    CheckServing();
  }
  co_await (this->*found->handler)(c, r, log);
}

asio::awaitable<void> Service::ChatPage(HttpConnection& c, const HttpRequest&, RequestLog* log) {
  log->status = 200;
  HttpHeaders headers;
  headers.emplace_back("Content-Security-Policy",
                       "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; "
                       "style-src 'unsafe-inline'; frame-ancestors 'none'");
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  co_await c.Reply(200, "text/html; charset=utf-8", std::string(kChatPage), std::move(headers));
}

asio::awaitable<void> Service::Health(HttpConnection& c, const HttpRequest&, RequestLog* log) {
  CheckServing();
  co_await Json(c, 200, "{\"status\":\"ok\"}", log);
}

asio::awaitable<void> Service::Version(HttpConnection& c, const HttpRequest&, RequestLog* log) {
  co_await Json(c, 200, "{\"version\":\"" DI_VERSION "\"}", log);
}

asio::awaitable<void> Service::MetricsText(HttpConnection& c, const HttpRequest&, RequestLog* log) {
  CheckLoaded();
  log->status = 200;
  std::string text = metrics_.Text(loop_->stats());
  co_await c.Reply(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

asio::awaitable<void> Service::Description(HttpConnection& c, const HttpRequest&, RequestLog* log) {
  co_await Json(c, 200, OpenApi(), log);
}

std::string Service::ModelsBody() const {
  ordered_json list = ordered_json::array();
  for (const std::string& name : options_.served_model_names) {
    list.push_back({{"id", name},
                    {"object", "model"},
                    {"created", started_},
                    {"owned_by", "deepinfer"},
                    {"root", options_.served_model_names[0]},
                    {"parent", nullptr},
                    {"max_model_len", executor_->options().max_model_len}});
  }
  return Dump({{"object", "list"}, {"data", list}});
}

asio::awaitable<void> Service::Models(HttpConnection& c, const HttpRequest&, RequestLog* log) {
  co_await Json(c, 200, ModelsBody(), log);
}

std::vector<TokenId> Service::EncodeText(const std::string& text, bool add_special_tokens) const {
  return add_special_tokens ? EncodePrompt(*executor_, text) : tokenizer().Encode(text);
}

// Of a text, or of the prompt that messages give.
std::string Service::TokenizeBody(const std::string& body) const {
  const JsonValue json = ParseJson(body, "request");
  JsonFields fields(json);
  CheckModel(fields.TakeString("model").value_or(""));
  const bool with_strings = fields.TakeBool("return_token_strs").value_or(false);
  std::vector<TokenId> ids;
  if (const std::optional<std::string> prompt = fields.TakeString("prompt")) {
    ids = EncodeText(*prompt, fields.TakeBool("add_special_tokens").value_or(true));
  } else {
    ids = tokenizer().EncodeSpans(RenderText(TakeChat(fields)).spans);
  }
  fields.RefuseRest();
  ordered_json strings = nullptr;
  for (size_t i = 0; with_strings && i < ids.size(); ++i)
    strings.push_back(tokenizer().TokenBytes(ids[i]));
  return Dump({{"count", ids.size()},
               {"max_model_len", executor_->options().max_model_len},
               {"tokens", ids},
               {"token_strs", strings}});
}

asio::awaitable<void> Service::Tokenize(HttpConnection& c, const HttpRequest& r, RequestLog* log) {
  std::string reply = co_await RunOnWorker([&] { return TokenizeBody(r.body); });
  co_await Json(c, 200, std::move(reply), log);
}

std::string Service::DetokenizeBody(const std::string& body) const {
  const JsonValue json = ParseJson(body, "request");
  JsonFields fields(json);
  CheckModel(fields.TakeString("model").value_or(""));
  const std::optional<std::vector<TokenId>> ids = fields.TakeIds("tokens");
  if (!ids) throw Error(Code::kInvalid, "tokens: expected a list of token ids, found none");
  fields.RefuseRest();
  return Dump({{"prompt", tokenizer().Decode(*ids, /*skip_special=*/false)}});
}

asio::awaitable<void> Service::Detokenize(HttpConnection& c, const HttpRequest& r,
                                          RequestLog* log) {
  std::string reply = co_await RunOnWorker([&] { return DetokenizeBody(r.body); });
  co_await Json(c, 200, std::move(reply), log);
}

ReplyHead Service::NewHead(const char* prefix, const std::string& model) const {
  return {.id = prefix + RandomHex(kRequestIdDigits),
          .model = model.empty() ? options_.served_model_names[0] : model,
          .created = static_cast<int64_t>(std::time(nullptr))};
}

}  // namespace deepinfer
