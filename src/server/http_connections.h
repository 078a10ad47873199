// HttpConnections: those that are open.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <set>

#include "server/http_connection.h"
#include "server/http_peer_watch.h"
#include "server/server_log.h"

namespace deepinfer {

// All of it runs on the I/O thread.
class HttpConnections {
 public:
  // `emptied` is called whenever the last one has ended.
  HttpConnections(boost::asio::io_context* io, HttpSettings settings,
                  HttpConnection::Handler handler, std::function<void()> emptied, ServerLog* log)
      : io_(*io),
        settings_(std::move(settings)),
        peers_(io),
        handler_(std::move(handler)),
        emptied_(std::move(emptied)),
        log_(*log) {}
  ~HttpConnections() { Abort(); }  // connections that outlive this, as coroutines, leave it alone
  HttpConnections(const HttpConnections&) = delete;
  HttpConnections& operator=(const HttpConnections&) = delete;

  // Serves a new one until it ends. An exception that comes out of the handler ends that connection
  // only, with a line in the log.
  void Serve(boost::asio::ip::tcp::socket socket);

  bool empty() const { return open_.empty(); }
  void Finish();  // HttpConnection::Finish, all of them
  void Abort();

 private:
  void Ended(HttpConnection* connection, std::exception_ptr failure);

  boost::asio::io_context& io_;
  const HttpSettings settings_;
  PeerWatch peers_;
  HttpConnection::Handler handler_;
  std::function<void()> emptied_;
  ServerLog& log_;
  std::set<HttpConnection*> open_;
};

}  // namespace deepinfer
