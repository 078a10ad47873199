// HttpConnections: those that are open.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <set>

#include "server/http_connection.h"

namespace deepinfer {

// All of it runs on the I/O thread.
class HttpConnections {
 public:
  // `emptied` is called whenever the last one has ended.
  HttpConnections(boost::asio::io_context* io, HttpConnection::Handler handler,
                  std::function<void()> emptied)
      : io_(*io), handler_(std::move(handler)), emptied_(std::move(emptied)) {}

  // Serves a new one until it ends. An exception that comes out of the handler ends that connection
  // only, with a line on standard error.
  void Serve(boost::asio::ip::tcp::socket socket);

  bool empty() const { return open_.empty(); }
  void Finish();  // HttpConnection::Finish, all of them
  void Abort();

 private:
  void Ended(HttpConnection* connection, std::exception_ptr failure);

  boost::asio::io_context& io_;
  HttpConnection::Handler handler_;
  std::function<void()> emptied_;
  std::set<HttpConnection*> open_;
};

}  // namespace deepinfer
