// Connections of a client, served by handlers that fail.
#include "server/http_connections.h"

#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <new>
#include <string>

namespace deepinfer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

class HttpConnectionsTest : public testing::Test {
 protected:
  // A client's end of a new connection that is served.
  tcp::socket Connect() {
    tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket client(io_);
    client.connect(acceptor.local_endpoint());
    connections_.Serve(acceptor.accept());
    return client;
  }

  // What the server sends until it closes.
  std::string Ask(tcp::socket* client, const std::string& path, const std::string& headers = "") {
    asio::write(*client, asio::buffer("GET " + path + " HTTP/1.1\r\n" + headers + "\r\n"));
    io_.restart();
    io_.run();
    std::string reply;
    boost::system::error_code error;
    asio::read(*client, asio::dynamic_buffer(reply), error);
    return reply;
  }

  asio::awaitable<void> Handle(HttpConnection& c, HttpRequest request) {
    if (request.path == "/throw") throw std::bad_alloc();
    if (request.path == "/watch") {
      c.WatchPeer([] {});
      throw std::bad_alloc();
    }
    if (request.path == "/stream") {
      co_await c.BeginStream();
      co_await c.Send("data: 1\n\n");
    }
    if (request.path == "/ok") co_await c.Reply(200, "text/plain", "fine");
  }

  asio::io_context io_{1};
  int n_emptied_ = 0;
  HttpConnections connections_{
      &io_,
      [this](HttpConnection& c, HttpRequest request) { return Handle(c, std::move(request)); },
      [this] { ++n_emptied_; }};
};

TEST_F(HttpConnectionsTest, AnExceptionEndsItsConnectionOnly) {
  int n = 0;
  for (const char* path : {"/throw", "/watch"}) {
    tcp::socket client = Connect();
    EXPECT_FALSE(connections_.empty());
    EXPECT_EQ(Ask(&client, path), "");
    EXPECT_TRUE(connections_.empty()) << path;
    EXPECT_EQ(n_emptied_, ++n);
  }
  tcp::socket client = Connect();
  EXPECT_NE(Ask(&client, "/ok", "Connection: close\r\n").find("fine"), std::string::npos);
  EXPECT_TRUE(connections_.empty());
}

TEST_F(HttpConnectionsTest, AReplyThatIsNotWholeEndsTheConnection) {
  tcp::socket client = Connect();
  const std::string reply = Ask(&client, "/stream");
  EXPECT_TRUE(reply.ends_with("data: 1\n\n\r\n")) << reply;
  tcp::socket other = Connect();
  EXPECT_EQ(Ask(&other, "/nothing"), "");
  EXPECT_TRUE(connections_.empty());
}

TEST_F(HttpConnectionsTest, RequestIdsComeBack) {
  tcp::socket client = Connect();
  const std::string close = "Connection: close\r\n";
  EXPECT_NE(Ask(&client, "/ok", close + "X-Request-Id: mine\r\n").find("X-Request-Id: mine\r\n"),
            std::string::npos);
  tcp::socket other = Connect();
  const std::string reply = Ask(&other, "/ok", close + "X-Request-Id: a b\r\n");
  EXPECT_EQ(reply.find("a b"), std::string::npos);
  EXPECT_NE(reply.find("X-Request-Id: "), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
