// Serve: the listener, the signals and the end.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "server/http_connections.h"
#include "server/http_service.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Connections take descriptors: as many as this process may have.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// As browsers send it: scheme, host and perhaps a port, in small letters; nothing behind.
bool IsOrigin(const std::string& text) {
  if (text == "*" || text == "null") return true;
  const size_t scheme = text.find("://");
  return scheme != std::string::npos && scheme > 0 && scheme + 3 < text.size() &&
         text.find('/', scheme + 3) == std::string::npos &&
         text.find_first_of("\"?#@") == std::string::npos && std::ranges::all_of(text, [](char c) {
           return c > 0x20 && c < 0x7f && (c < 'A' || c > 'Z');
         });
}

class Server {
 public:
  Server(const ServerOptions& options, const ServedModel& model)
      : options_(options), model_(model), service_(&io_, options, &log_), acceptor_(Listen()) {}

  ~Server() {
    if (loader_.joinable()) loader_.join();
  }

  void Run() {
    const bool is_v6 = options_.host.find(':') != std::string::npos;
    log_.Message(fmt::format("listening on http://{}:{}, loading {}",
                             is_v6 ? "[" + options_.host + "]" : options_.host,
                             acceptor_.local_endpoint().port(), model_.name));
    asio::co_spawn(io_, Accept(), asio::detached);
    AwaitSignal();
    loader_ = std::thread([this] { Load(); });
    io_.run();  // until nothing is left to do: End sees to it
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  tcp::acceptor Listen() {
    error_code error;
    const asio::ip::address address = asio::ip::make_address(options_.host, error);
    if (error) {
      throw Error(Code::kInvalid, fmt::format("--host: expected an IP address, found {}",
                                              options_.host.substr(0, 100)));
    }
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
    tcp::acceptor acceptor(io_);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(kBacklog, error);
    if (error) {
      throw Error(Code::kIo, fmt::format("--port: expected to listen on {}:{}, found: {}",
                                         options_.host, options_.port, error.message()));
    }
    return acceptor;
  }

  void Load() {
    std::unique_ptr<Executor> executor;
    std::exception_ptr failure;
    try {
      executor = model_.load();
    } catch (...) {
      failure = std::current_exception();
    }
    auto shared = std::make_shared<std::unique_ptr<Executor>>(std::move(executor));
    asio::post(io_, [this, shared, failure] { Loaded(std::move(*shared), failure); });
  }

  void Loaded(std::unique_ptr<Executor> executor, std::exception_ptr failure) {
    loaded_ = true;
    if (!failure) {
      try {
        service_.Start(std::move(executor), [this](std::string why) { Fail(std::move(why)); });
        return log_.Message("ready");
      } catch (...) {
        failure = std::current_exception();
      }
    }
    failure_ = failure;
    Stop();
    Abort();
  }

  // Running requests have been told.
  void Fail(std::string why) {
    if (failure_) return;
    failure_ = std::make_exception_ptr(Error(Code::kIo, std::move(why)));
    if (!stopping_) Stop();
  }

  asio::awaitable<void> Accept() {
    for (;;) {
      error_code error;
      tcp::socket socket =
          co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (!acceptor_.is_open()) co_return;
      if (error) {  // no descriptor is free, or the peer has gone already
        asio::steady_timer pause(io_, std::chrono::milliseconds(50));
        error_code ignored;
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        continue;
      }
      socket.set_option(tcp::no_delay(true), error);
      connections_.Serve(std::move(socket));
    }
  }

  void AwaitSignal() {
    signals_.async_wait([this](const error_code& error, int) {
      if (error) return;
      if (!loaded_) std::_Exit(0);  // loading cannot be interrupted, and nothing can be lost
      if (stopping_) return Abort();
      AwaitSignal();
      Stop();
    });
  }

  // No new requests; running ones have until the deadline.
  void Stop() {
    stopping_ = true;
    service_.Stop();
    error_code ignored;
    acceptor_.close(ignored);
    connections_.Finish();
    if (connections_.empty()) return End();
    deadline_.expires_after(std::chrono::seconds(options_.shutdown_timeout_s));
    deadline_.async_wait([this](const error_code& error) {
      if (!error) Abort();
    });
  }

  // Running requests end now.
  void Abort() {
    service_.Abort();
    connections_.Abort();
  }

  void End() {
    signals_.cancel();
    deadline_.cancel();
  }

  static constexpr int kBacklog = 4096;

  const ServerOptions& options_;
  const ServedModel& model_;
  ServerLog log_{STDERR_FILENO, options_.log_format == "json"};
  asio::io_context io_{1};
  Service service_;
  tcp::acceptor acceptor_;
  asio::signal_set signals_{io_, SIGINT, SIGTERM};
  asio::steady_timer deadline_{io_};
  HttpConnections connections_{&io_,
                               {.allowed_origins = options_.allowed_origins},
                               [this](HttpConnection& c, HttpRequest request) {
                                 return service_.Handle(c, std::move(request));
                               },
                               [this] {
                                 if (stopping_) End();
                               },
                               &log_};
  bool loaded_ = false, stopping_ = false;
  std::exception_ptr failure_;
  std::thread loader_;
};

}  // namespace

void ServerOptions::Validate() const {
  const auto refuse = [](const char* option, const char* expected, const auto& found) {
    throw Error(Code::kInvalid,
                fmt::format("--{}: expected {}, found {}", option, expected, found));
  };
  if (port < 0 || port > 65535) refuse("port", "an integer from 0 to 65535", port);
  if (log_format != "text" && log_format != "json")
    refuse("log-format", "one of text, json", log_format);
  if (shutdown_timeout_s < 0 || shutdown_timeout_s > 86400)
    refuse("shutdown-timeout", "seconds from 0 to 86400", shutdown_timeout_s);
  if (served_model_names.empty()) refuse("served-model-name", "a name", "none");
  for (const std::string& name : served_model_names) {
    if (name.empty()) refuse("served-model-name", "a name", "an empty one");
  }
  for (const std::string& origin : allowed_origins) {
    if (!IsOrigin(origin))
      refuse("allowed-origins", "origins such as https://example.org, or *", origin.substr(0, 100));
  }
  for (const std::string& key : api_keys) {
    if (key.empty()) refuse("api-key", "a key", "an empty one");
  }
}

void Serve(const ServerOptions& options, const ServedModel& model) {
  options.Validate();
  RaiseDescriptorLimit();
  Server(options, model).Run();
}

}  // namespace deepinfer
