// PeerWatch: tells when the peers of sockets have gone. All of it runs on the I/O thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <unordered_map>

namespace deepinfer {

// A peer that has closed its sending half counts as gone. That is seen also behind bytes of it that
// nobody has read yet, which waiting for the socket to become readable does not tell.
class PeerWatch {
 public:
  explicit PeerWatch(boost::asio::io_context* io);

  // Calls `gone` at most once, never from within Add. Returns what Remove needs. Throws
  // std::system_error.
  uint64_t Add(int socket, std::function<void()> gone);
  // Nothing when `gone` has been called. open: false when the socket was closed meanwhile; its
  // number may be another's then.
  void Remove(uint64_t watch, bool open);

 private:
  void Await();
  void TakeEvents();

  struct Watched {
    int socket;
    std::function<void()> gone;
  };

  boost::asio::posix::stream_descriptor epoll_;
  std::unordered_map<uint64_t, Watched> watched_;
  uint64_t n_added_ = 0;
  bool awaiting_ = false;  // only while something is watched: it keeps the I/O thread going
};

}  // namespace deepinfer
