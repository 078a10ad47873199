// Connections of a client, served by handlers that fail.
#include "server/http_connections.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <new>
#include <string>
#include <utility>

namespace deepinfer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

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
    if (request.path == "/wait") {
      ++n_asked_;
      asio::steady_timer never(io_, std::chrono::hours(1));
      c.WatchPeer([&] {
        ++n_gone_;
        never.cancel();
      });
      error_code cancelled;
      co_await never.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    }
    if (request.path == "/flood") {
      c.WatchPeer([&] { ++n_gone_; });
      bool taken = co_await c.BeginStream();
      while (taken) taken = co_await c.Send(std::string(1 << 20, 'x'));
    }
    if (request.path == "/ok") co_await c.Reply(200, "text/plain", "fine");
  }

  asio::io_context io_{1};
  int n_emptied_ = 0, n_asked_ = 0, n_gone_ = 0;
  ServerLog log_{STDERR_FILENO, /*as_json=*/false};
  HttpConnections connections_{
      &io_,
      {.allowed_origins = {"http://here", "http://there:8"}, .write = std::chrono::seconds(1)},
      [this](HttpConnection& c, HttpRequest request) { return Handle(c, std::move(request)); },
      [this] { ++n_emptied_; },
      &log_};
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

// Also when it has sent more than fits into what is read ahead: none of that is begun.
TEST_F(HttpConnectionsTest, APeerThatGoesIsSeenBehindFurtherRequests) {
  const std::string ask = "GET /wait HTTP/1.1\r\n\r\n";
  for (const int n : {1, 2, 1000}) {
    tcp::socket client = Connect();
    asio::write(client, asio::buffer(ask));
    io_.restart();
    while (n_asked_ == 0) io_.run_one();
    for (int i = 1; i < n; ++i) asio::write(client, asio::buffer(ask));
    io_.poll();
    EXPECT_EQ(n_gone_, 0);
    client.close();
    io_.run();
    EXPECT_EQ(std::exchange(n_gone_, 0), 1);
    EXPECT_EQ(std::exchange(n_asked_, 0), 1);
    EXPECT_TRUE(connections_.empty());
  }
}

TEST_F(HttpConnectionsTest, AHalfClosedPeerCountsAsGone) {
  tcp::socket other = Connect();
  asio::write(other, asio::buffer("GET /wait HTTP/1.1\r\n\r\n"));
  other.shutdown(tcp::socket::shutdown_send);
  io_.restart();
  io_.run();
  EXPECT_EQ(n_gone_, 1);
  EXPECT_TRUE(connections_.empty());
}

// Its time-out closes the socket behind everybody's back.
TEST_F(HttpConnectionsTest, APeerThatReadsNothingIsNotWatchedForEver) {
  tcp::socket client = Connect();
  asio::write(client, asio::buffer("GET /flood HTTP/1.1\r\n\r\n"));
  io_.restart();
  io_.run_for(std::chrono::seconds(20));
  EXPECT_TRUE(io_.stopped());
  EXPECT_TRUE(connections_.empty());
  EXPECT_EQ(n_gone_, 0);
}

TEST_F(HttpConnectionsTest, TargetsMayBeWhole) {
  for (const char* target : {"http://x/ok", "HTTP://x:80/ok?a=http://b/c", "https://x/ok"}) {
    tcp::socket client = Connect();
    EXPECT_TRUE(Ask(&client, target, "Connection: close\r\n").ends_with("fine")) << target;
  }
}

TEST_F(HttpConnectionsTest, PagesOfAllowedOriginsMayRead) {
  const auto ask = [&](const std::string& origin) {
    tcp::socket client = Connect();
    return Ask(&client, "/ok", "Connection: close\r\n" + origin);
  };
  EXPECT_NE(ask("Origin: http://there:8\r\n").find("Allow-Origin: http://there:8\r\n"),
            std::string::npos);
  for (const char* other : {"", "Origin: http://there\r\n", "Origin: *\r\n"}) {
    const std::string reply = ask(other);
    EXPECT_EQ(reply.find("Allow-Origin"), std::string::npos) << reply;
    EXPECT_NE(reply.find("Vary: Origin\r\n"), std::string::npos) << reply;
  }
}

}  // namespace
}  // namespace deepinfer
