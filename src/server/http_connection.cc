#include "server/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <sstream>

#include "server/api_reply.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

std::string Header(const http::request<http::string_body>& request, http::field field) {
  const auto value = request[field];
  return {value.data(), value.size()};
}

// What the client calls its request, if that can go into headers and logs; else a random id.
std::string IdOf(const http::request<http::string_body>& request) {
  const auto given = request["X-Request-Id"];
  const bool good =
      !given.empty() && given.size() <= 128 &&
      std::ranges::all_of(given, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  return good ? std::string(given.data(), given.size()) : RandomHex(kRequestIdDigits);
}

// The path of a target, which may be a whole URL: "http://host:8000/health?x".
std::string PathOf(std::string target) {
  target.resize(std::min(target.find('?'), target.size()));
  for (const std::string scheme : {"http://", "https://"}) {
    if (!beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    const size_t slash = target.find('/', scheme.size());
    return slash == std::string::npos ? "/" : target.substr(slash);
  }
  return target;
}

int StatusOf(const error_code& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

std::string Sentence(int status, const error_code& error, const HttpSettings& settings) {
  if (status == 431)
    return fmt::format("header: expected at most {} bytes", settings.max_header_bytes);
  if (status == 413) return fmt::format("body: expected at most {} bytes", settings.max_body_bytes);
  return fmt::format("expected an HTTP/1.1 request, found: {}", error.message());
}

std::string Bytes(const http::response<http::empty_body>& head) {
  std::ostringstream out;
  out << head.base();
  return out.str();
}

}  // namespace

asio::awaitable<void> HttpConnection::Run(Handler handler) {
  const std::shared_ptr<HttpConnection> keep = shared_from_this();
  while (keep_alive_ && !broken_) {
    HttpRequest request;
    began_ = streaming_ = false;
    const ReadEnd end = co_await Read(&request);
    if (end == ReadEnd::kRefused) co_await Drain();
    if (end != ReadEnd::kRequest) break;
    co_await handler(*this, std::move(request));
    UnwatchPeer();
    if (!began_ || streaming_) break;  // nothing else could be told from the rest of that reply
  }
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

// Reads on for a moment, so that what was sent is not lost with the unread rest of the request.
asio::awaitable<void> HttpConnection::Drain() {
  error_code error;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  std::vector<char> rest(64 << 10);
  stream_.expires_after(std::chrono::seconds(1));
  while (!error) {
    co_await stream_.async_read_some(asio::buffer(rest),
                                     asio::redirect_error(asio::use_awaitable, error));
  }
}

asio::awaitable<HttpConnection::ReadEnd> HttpConnection::Read(HttpRequest* out) {
  http::request_parser<http::string_body> parser;
  parser.body_limit(settings_.max_body_bytes);
  parser.header_limit(settings_.max_header_bytes);
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  reading_ = true;
  stream_.expires_after(settings_.idle);
  co_await http::async_read_header(stream_, buffer_, parser, token);
  reading_ = false;
  stream_.expires_after(settings_.read);
  if (!error && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    const bool open = co_await Write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!open) co_return ReadEnd::kClosed;
  }
  if (!error) co_await http::async_read(stream_, buffer_, parser, token);
  stream_.expires_never();
  const bool is_protocol = error.category() == make_error_code(http::error::bad_method).category();
  if (error == http::error::end_of_stream || (error && !is_protocol) ||
      error == http::error::partial_message)
    co_return ReadEnd::kClosed;
  request_id_ = IdOf(parser.get());
  origin_ = Header(parser.get(), http::field::origin);
  if (error) {
    keep_alive_ = false;
    const int status = StatusOf(error);
    std::string body = ErrorReply(status, Sentence(status, error, settings_));
    co_await Reply(status, "application/json", std::move(body));
    co_return ReadEnd::kRefused;
  }
  http::request<http::string_body> request = parser.release();
  version_ = request.version();
  keep_alive_ = keep_alive_ && request.keep_alive();
  head_only_ = request.method() == http::verb::head;
  out->method = std::string(request.method_string());
  out->path = PathOf(std::string(request.target()));
  out->authorization = Header(request, http::field::authorization);
  out->asked_method = Header(request, http::field::access_control_request_method);
  out->asked_headers = Header(request, http::field::access_control_request_headers);
  out->request_id = request_id_;
  out->body = std::move(request.body());
  co_return ReadEnd::kRequest;
}

asio::awaitable<bool> HttpConnection::Write(std::string bytes) {
  if (broken_) co_return false;
  error_code error;
  stream_.expires_after(settings_.write);
  co_await asio::async_write(stream_, asio::buffer(bytes),
                             asio::redirect_error(asio::use_awaitable, error));
  stream_.expires_never();
  broken_ = static_cast<bool>(error);
  co_return !broken_;
}

HttpHeaders HttpConnection::SharedHeaders() const {
  HttpHeaders headers;
  headers.emplace_back("X-Request-Id", request_id_);
  const std::vector<std::string>& allowed = settings_.allowed_origins;
  const bool all = std::ranges::find(allowed, "*") != allowed.end();
  if (!all && !allowed.empty()) headers.emplace_back("Vary", "Origin");
  if (origin_.empty() || (!all && std::ranges::find(allowed, origin_) == allowed.end()))
    return headers;
  headers.emplace_back("Access-Control-Allow-Origin", all ? "*" : origin_);
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return headers;
}

asio::awaitable<void> HttpConnection::Reply(int status, std::string_view content_type,
                                            std::string body, HttpHeaders headers) {
  began_ = true;
  http::response<http::empty_body> head(static_cast<http::status>(status), version_);
  if (!content_type.empty()) head.set(http::field::content_type, std::string(content_type));
  for (const auto& [name, value] : SharedHeaders()) head.set(name, value);
  for (const auto& [name, value] : headers) head.set(name, value);
  if (status != 204) head.content_length(body.size());
  head.keep_alive(keep_alive_);
  std::string bytes = Bytes(head);
  if (!head_only_) bytes += body;
  co_await Write(std::move(bytes));
}

asio::awaitable<bool> HttpConnection::BeginStream(HttpHeaders headers) {
  began_ = streaming_ = true;
  if (version_ == 10) keep_alive_ = false;  // ends with the connection
  http::response<http::empty_body> head(http::status::ok, version_);
  head.set(http::field::content_type, "text/event-stream; charset=utf-8");
  head.set(http::field::cache_control, "no-cache");
  for (const auto& [name, value] : SharedHeaders()) head.set(name, value);
  for (const auto& [name, value] : headers) head.set(name, value);
  if (version_ != 10) head.chunked(true);
  head.keep_alive(keep_alive_);
  co_return co_await Write(Bytes(head));
}

asio::awaitable<bool> HttpConnection::Send(std::string events) {
  if (version_ != 10) events = fmt::format("{:x}\r\n{}\r\n", events.size(), events);
  co_return co_await Write(std::move(events));
}

asio::awaitable<void> HttpConnection::EndStream() {
  if (version_ != 10) co_await Write("0\r\n\r\n");
  streaming_ = false;
}

void HttpConnection::WatchPeer(std::function<void()> gone) {
  watch_ = peers_.Add(stream_.socket().native_handle(), [this, gone = std::move(gone)] {
    broken_ = true;
    gone();
  });
}

void HttpConnection::UnwatchPeer() {
  if (watch_) peers_.Remove(*watch_, stream_.socket().is_open());
  watch_.reset();
}

void HttpConnection::Finish() {
  keep_alive_ = false;
  error_code ignored;
  if (reading_) stream_.socket().cancel(ignored);
}

void HttpConnection::Abort() {
  keep_alive_ = false;
  broken_ = true;
  UnwatchPeer();
  stream_.close();
}

}  // namespace deepinfer
