// Inbox: deltas of the engine on their way to one HTTP request. All of it on the I/O thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <vector>

#include "engine/request.h"

namespace deepinfer {

class Inbox {
 public:
  struct Item {
    int64_t choice;
    Delta delta;
  };
  // A client that reads so much slower than its answer grows is cut off.
  static constexpr size_t kMaxBytes = 4 << 20;

  explicit Inbox(boost::asio::any_io_executor executor)
      : wake_(std::move(executor), boost::asio::steady_timer::time_point::max()) {}

  void Put(int64_t choice, Delta delta);
  // The client is gone: nobody reads any more.
  void Close();
  bool closed() const { return closed_; }

  // What has come since the last call, waiting for something; empty once closed.
  boost::asio::awaitable<std::vector<Item>> Next();

 private:
  boost::asio::steady_timer wake_;  // never fires; cancelling it wakes Next
  std::vector<Item> items_;
  size_t bytes_ = 0;
  bool closed_ = false;
};

}  // namespace deepinfer
