#include "server/http_peer_watch.h"

#include <sys/epoll.h>

#include <cerrno>
#include <system_error>

namespace deepinfer {
namespace {

int CreateEpoll() {
  const int fd = epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  return fd;
}

}  // namespace

PeerWatch::PeerWatch(boost::asio::io_context* io) : epoll_(*io, CreateEpoll()) {}

void PeerWatch::Add(int socket, std::function<void()> gone) {
  epoll_event event{};
  event.events = EPOLLRDHUP;  // and what is always told: errors, and both halves closed
  event.data.fd = socket;
  if (epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, socket, &event) != 0)
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  watched_[socket] = std::move(gone);
  if (!awaiting_) Await();
}

void PeerWatch::Remove(int socket) {
  if (watched_.erase(socket) == 0) return;
  epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, socket, nullptr);
  boost::system::error_code ignored;
  if (watched_.empty()) epoll_.cancel(ignored);
}

void PeerWatch::Await() {
  awaiting_ = true;
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this](const boost::system::error_code& error) {
                      awaiting_ = false;
                      if (!error) TakeEvents();
                      if (!watched_.empty() && !awaiting_) Await();
                    });
}

void PeerWatch::TakeEvents() {
  epoll_event events[64];
  int n = 0;
  while ((n = epoll_wait(epoll_.native_handle(), events, std::size(events), 0)) > 0) {
    for (int i = 0; i < n; ++i) {
      const int socket = events[i].data.fd;
      const auto found = watched_.find(socket);
      if (found == watched_.end()) continue;  // the one before has ended it
      const std::function<void()> gone = std::move(found->second);
      Remove(socket);
      gone();
    }
  }
}

}  // namespace deepinfer
