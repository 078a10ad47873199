// One HTTP/1.1 connection: requests in, replies and event streams out. All of it runs on the I/O
// thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http_peer_watch.h"

namespace deepinfer {

struct HttpSettings {
  // Origins of web pages that may read replies; "*": all.
  std::vector<std::string> allowed_origins;
  uint64_t max_body_bytes = uint64_t{32} << 20;
  uint32_t max_header_bytes = 16 << 10;
  std::chrono::seconds idle{75};   // between requests
  std::chrono::seconds read{60};   // for a whole request
  std::chrono::seconds write{30};  // for one write: who reads slower is cut off
};

struct HttpRequest {
  std::string method, path;  // without the query
  std::string authorization;
  // What a browser asks for before it sends a page's request: Access-Control-Request-*.
  std::string asked_method, asked_headers;
  // X-Request-Id, or a random one where there is none that may be sent back.
  std::string request_id;
  std::string body;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // Answers one request by Reply, or by BeginStream, Send and EndStream. Without, the connection
  // ends.
  using Handler = std::function<boost::asio::awaitable<void>(HttpConnection&, HttpRequest)>;

  // Needs the other two as long as it lives.
  HttpConnection(boost::asio::ip::tcp::socket socket, const HttpSettings& settings,
                 PeerWatch* peers)
      : stream_(std::move(socket)), settings_(settings), peers_(*peers) {}
  ~HttpConnection() { UnwatchPeer(); }

  // Serves requests until the peer goes, is too slow, or asks to end. Owned by a shared_ptr.
  boost::asio::awaitable<void> Run(Handler handler);

  // A whole reply. Does nothing when the peer is gone. Every reply and stream has the X-Request-Id,
  // and what lets a web page of an allowed origin read it.
  boost::asio::awaitable<void> Reply(int status, std::string_view content_type, std::string body,
                                     HttpHeaders headers = {});

  // An event stream (SSE). false: the peer is gone.
  boost::asio::awaitable<bool> BeginStream(HttpHeaders headers = {});
  // `events`: one or more, each ending in an empty line.
  boost::asio::awaitable<bool> Send(std::string events);
  boost::asio::awaitable<void> EndStream();
  bool began() const { return began_; }  // a reply to the current request

  // Calls `gone` once when the peer closes, or its sending half, before the reply has ended.
  void WatchPeer(std::function<void()> gone);

  // No further request is taken after the current one; an idle connection closes at once.
  void Finish();
  // Closes it, whatever it is doing.
  void Abort();

 private:
  enum class ReadEnd { kRequest, kClosed, kRefused };
  boost::asio::awaitable<ReadEnd> Read(HttpRequest* request);
  boost::asio::awaitable<bool> Write(std::string bytes);
  boost::asio::awaitable<void> Drain();
  void UnwatchPeer();
  HttpHeaders SharedHeaders() const;

  boost::beast::tcp_stream stream_;
  const HttpSettings& settings_;
  PeerWatch& peers_;
  boost::beast::flat_buffer buffer_;
  // Of the current request: 10 or 11, its id, and the web page that it comes from.
  unsigned version_ = 11;
  std::string request_id_, origin_;
  bool keep_alive_ = true, began_ = false, streaming_ = false, reading_ = false, head_only_ = false,
       broken_ = false;
  std::optional<uint64_t> watch_;  // while the peer is watched
};

}  // namespace deepinfer
