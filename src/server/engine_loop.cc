#include "server/engine_loop.h"

#include <algorithm>

namespace deepinfer {

EngineLoop::EngineLoop(Executor* executor, Deliver deliver, Fail fail)
    : engine_(executor),
      deliver_(std::move(deliver)),
      fail_(std::move(fail)),
      stats_{engine_.stats(), 0},
      thread_([this] { Run(); }) {}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

EngineLoop::Ticket EngineLoop::Submit(Request request) {
  engine_.Check(request);
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    submitted_.emplace_back(ticket, std::move(request));
  }
  wake_.notify_one();
  return ticket;
}

void EngineLoop::Cancel(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(ticket);
  }
  wake_.notify_one();
}

EngineLoop::Stats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.n_submitted = std::ssize(submitted_);
  return stats;
}

void EngineLoop::Run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] {
        return stop_ || !submitted_.empty() || !cancelled_.empty() || !engine_.idle();
      });
      if (stop_) return;
    }
    TakeCommands(&engine_);
    std::vector<News> news;
    for (Delta& delta : engine_.Step()) {
      const auto found = tickets_.find(delta.id);
      const Ticket ticket = found->second;
      if (delta.finish) {
        ids_.erase(ticket);
        tickets_.erase(found);
      }
      news.push_back({ticket, std::move(delta)});
    }
    Publish(engine_);
    if (!news.empty()) deliver_(std::move(news));
    if (!engine_.failure().empty() && fail_) fail_(engine_.failure());
  }
}

void EngineLoop::TakeCommands(Engine* engine) {
  std::vector<std::pair<Ticket, Request>> submitted;
  std::vector<Ticket> cancelled;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
  }
  for (auto& [ticket, request] : submitted) {
    if (std::ranges::find(cancelled, ticket) != cancelled.end()) continue;
    const RequestId id = engine->Submit(std::move(request));
    tickets_[id] = ticket;
    ids_[ticket] = id;
  }
  for (const Ticket ticket : cancelled) {
    const auto found = ids_.find(ticket);
    if (found == ids_.end()) continue;  // it has ended
    engine->Cancel(found->second);
    tickets_.erase(found->second);
    ids_.erase(found);
  }
}

void EngineLoop::Publish(const Engine& engine) {
  const std::lock_guard lock(mutex_);
  stats_.engine = engine.stats();
}

}  // namespace deepinfer
