// EngineLoop: the engine on a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace deepinfer {

// All functions may be called from any thread.
class EngineLoop {
 public:
  using Ticket = uint64_t;
  struct News {
    Ticket ticket;
    Delta delta;
  };
  // Called on the engine's thread with what a step brought, at most once a step; must not block.
  using Deliver = std::function<void(std::vector<News>)>;
  // The same, behind a step that told all requests why no other is possible.
  using Fail = std::function<void(const std::string& why)>;

  // The executor outlives the loop.
  EngineLoop(Executor* executor, Deliver deliver, Fail fail = nullptr);
  // Ends the thread behind the step it is in; what was asked for is dropped.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Queues a request; its deltas come by Deliver, the last one with `finish`. Throws what
  // Engine::Check throws, and Error(kBusy) when too much is waiting already.
  Ticket Submit(Request request);
  // No more deltas come of it, but for those on their way; its slot and blocks are free within one
  // step.
  void Cancel(Ticket ticket);

  struct Stats {
    Engine::Stats engine;
    int64_t n_submitted;  // requests that are not with the engine yet
  };
  Stats stats() const;

 private:
  void Run();
  void TakeCommands(Engine* engine);
  void Publish(const Engine& engine);

  Engine engine_;
  Deliver deliver_;
  Fail fail_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::vector<std::pair<Ticket, Request>> submitted_;
  std::vector<Ticket> cancelled_;
  bool stop_ = false;
  Ticket next_ticket_ = 1;
  Stats stats_;
  // Only of the engine's thread.
  std::map<RequestId, Ticket> tickets_;
  std::map<Ticket, RequestId> ids_;
  std::thread thread_;  // last: starts when all else is ready
};

}  // namespace deepinfer
