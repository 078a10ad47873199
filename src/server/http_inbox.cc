#include "server/http_inbox.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace deepinfer {

namespace asio = boost::asio;

void Inbox::Put(int64_t choice, Delta delta) {
  if (closed_) return;
  bytes_ += sizeof(Item) + delta.text.size() + delta.token_ids.size() * sizeof(TokenId);
  for (const TokenLogprob& t : delta.logprobs) bytes_ += sizeof t + t.top.size() * sizeof(t.top[0]);
  items_.push_back({choice, std::move(delta)});
  if (bytes_ > kMaxBytes) return Close();
  wake_.cancel();
}

void Inbox::Close() {
  closed_ = true;
  items_.clear();
  wake_.cancel();
}

asio::awaitable<std::vector<Inbox::Item>> Inbox::Next() {
  while (items_.empty() && !closed_) {
    boost::system::error_code cancelled;
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
  bytes_ = 0;
  co_return std::exchange(items_, {});
}

}  // namespace deepinfer
