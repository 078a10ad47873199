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

uint64_t PeerWatch::Add(int socket, std::function<void()> gone) {
  epoll_event event{};
  event.events = EPOLLRDHUP;  // and what is always told: errors, and both halves closed
  event.data.u64 = n_added_;
  if (epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, socket, &event) != 0)
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  watched_[n_added_] = {socket, std::move(gone)};
  if (!awaiting_) Await();
  return n_added_++;
}

void PeerWatch::Remove(uint64_t watch, bool open) {
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  if (open) epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, found->second.socket, nullptr);
  watched_.erase(found);
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
      const auto found = watched_.find(events[i].data.u64);
      if (found == watched_.end()) continue;  // the one before has ended it
      const std::function<void()> gone = std::move(found->second.gone);
      Remove(found->first, /*open=*/true);
      gone();
    }
  }
}

}  // namespace deepinfer
