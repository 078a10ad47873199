#include "server/server_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <nlohmann/json.hpp>

#include "server/api_reply.h"

namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostLogged = 256;  // bytes of what a client chose
constexpr size_t kMostWaiting = 1 << 20;
constexpr std::chrono::seconds kFlush(1);

// As it may stand in a line of text.
std::string Shown(std::string text) {
  text.resize(std::min(text.size(), kMostLogged));
  for (char& c : text) {
    if (c <= 0x20 || c >= 0x7f) c = '?';  // other bytes than ASCII are below 0
  }
  return text;
}

std::string Now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

std::string RequestLine(const RequestLog& log, bool as_json) {
  const int64_t ms = static_cast<int64_t>(log.seconds() * 1e3);
  if (as_json) {
    return Dump({{"time", Now()},
                 {"request_id", log.id},
                 {"method", log.method},
                 {"path", log.path.substr(0, kMostLogged)},
                 {"status", log.status},
                 {"prompt_tokens", log.prompt_tokens},
                 {"completion_tokens", log.completion_tokens},
                 {"finish_reason", log.finish_reason},
                 {"ms", ms},
                 {"user", log.user.substr(0, kMostLogged)}});
  }
  const std::string user = log.user.empty() ? "" : fmt::format(" user {}", Shown(log.user));
  return fmt::format("{} {} {} {} {} {} + {} tokens {} {} ms{}", Now(), log.id, log.method,
                     Shown(log.path), log.status, log.prompt_tokens, log.completion_tokens,
                     log.finish_reason.empty() ? "-" : log.finish_reason, ms, user);
}

}  // namespace

double RequestLog::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ServerLog::ServerLog(int fd, bool as_json)
    : fd_(fd), as_json_(as_json), thread_([this] { Run(); }) {}

ServerLog::~ServerLog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    deadline_ = Clock::now() + kFlush;
  }
  wake_.notify_one();
  thread_.join();
}

std::string ServerLog::MessageLine(std::string_view text) const {
  if (!as_json_) return fmt::format("deepinfer: {}", text);
  return Dump({{"time", Now()}, {"message", text}});
}

void ServerLog::Message(std::string_view text) { Add(MessageLine(text)); }

void ServerLog::Request(const RequestLog& request) { Add(RequestLine(request, as_json_)); }

void ServerLog::Add(const std::string& line) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + line.size() >= kMostWaiting) {
      ++n_lost_;
      return;
    }
    waiting_ += line;
    waiting_ += '\n';
  }
  wake_.notify_one();
}

void ServerLog::Run() {
  for (;;) {
    std::string lines;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      lines.swap(waiting_);
      if (n_lost_ > 0)
        lines += MessageLine(fmt::format("{} lines of the log were lost here", n_lost_)) + "\n";
      n_lost_ = 0;
    }
    WriteOut(lines);
  }
}

// false: the time to end is over.
bool ServerLog::WaitUntilTaken() {
  for (;;) {
    pollfd out{fd_, POLLOUT, 0};
    if (poll(&out, 1, 50) > 0) return true;
    const std::lock_guard lock(mutex_);
    if (stop_ && Clock::now() > deadline_) return false;
  }
}

// A pipe of one writer that polls as writable takes PIPE_BUF bytes without blocking.
void ServerLog::WriteOut(std::string_view lines) {
  while (!lines.empty() && WaitUntilTaken()) {
    const ssize_t n = write(fd_, lines.data(), std::min<size_t>(lines.size(), PIPE_BUF));
    if (n > 0) lines.remove_prefix(static_cast<size_t>(n));
    if (n <= 0 && errno != EAGAIN && errno != EINTR) return;
  }
}

}  // namespace deepinfer
