// PeerWatch: tells when the peers of sockets have gone. All of it runs on the I/O thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <unordered_map>

namespace deepinfer {

// A peer that has closed its sending half counts as gone. That is seen also behind bytes of it that
// nobody has read yet, which waiting for the socket to become readable does not tell.
class PeerWatch {
 public:
  explicit PeerWatch(boost::asio::io_context* io);

  // Calls `gone` at most once, never from within Add. Throws std::system_error.
  void Add(int socket, std::function<void()> gone);
  // Before the socket is closed; nothing when it is not watched.
  void Remove(int socket);

 private:
  void Await();
  void TakeEvents();

  boost::asio::posix::stream_descriptor epoll_;
  std::unordered_map<int, std::function<void()>> watched_;
  bool awaiting_ = false;  // only while something is watched: it keeps the I/O thread going
};

}  // namespace deepinfer
