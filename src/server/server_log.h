// ServerLog: lines on their way to standard error. Nobody waits for who reads them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace deepinfer {

// One request with its answer, as the log tells it.
struct RequestLog {
  std::string id, method, path, user = {};
  int status = 0;  // 0: the client went before the reply
  int64_t prompt_tokens = 0, completion_tokens = 0;
  std::string finish_reason = {};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  double seconds() const;
};

// A thread writes the lines. When they are not taken, a MiB of them waits; what is beyond is
// lost, and said to be as soon as something is taken again. Errors of the descriptor lose lines
// too. All functions may be called from any thread.
class ServerLog {
 public:
  ServerLog(int fd, bool as_json);
  // Gives what waits a second to be taken.
  ~ServerLog();
  ServerLog(const ServerLog&) = delete;
  ServerLog& operator=(const ServerLog&) = delete;

  // "deepinfer: text", or an object with time and message.
  void Message(std::string_view text);
  void Request(const RequestLog& request);

 private:
  std::string MessageLine(std::string_view text) const;
  void Add(const std::string& line);
  void Run();
  bool WaitUntilTaken();
  void WriteOut(std::string_view lines);

  const int fd_;
  const bool as_json_;
  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::string waiting_;
  int64_t n_lost_ = 0;
  bool stop_ = false;
  std::chrono::steady_clock::time_point deadline_;  // once stop_ is set
  std::thread thread_;                              // last: starts when all else is ready
};

}  // namespace deepinfer
