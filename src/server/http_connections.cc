#include "server/http_connections.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>

namespace deepinfer {

namespace asio = boost::asio;

void HttpConnections::Serve(asio::ip::tcp::socket socket) {
  std::shared_ptr<HttpConnection> connection;
  try {
    connection = std::make_shared<HttpConnection>(std::move(socket), settings_, &peers_);
    open_.insert(connection.get());
    asio::co_spawn(io_, connection->Run(handler_), [this, connection](std::exception_ptr failure) {
      Ended(connection.get(), std::move(failure));
    });
  } catch (...) {  // there was no memory for it
    Ended(connection.get(), std::current_exception());
  }
}

void HttpConnections::Ended(HttpConnection* connection, std::exception_ptr failure) {
  if (failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      log_.Message(fmt::format("a connection has failed: {}", e.what()));
    }
    if (connection != nullptr) connection->Abort();  // its peer may still be watched
  }
  open_.erase(connection);
  if (open_.empty()) emptied_();
}

void HttpConnections::Finish() {
  for (HttpConnection* connection : open_) connection->Finish();
}

void HttpConnections::Abort() {
  for (HttpConnection* connection : open_) connection->Abort();
}

}  // namespace deepinfer
