#include "server/engine_loop.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/error.h"

namespace deepinfer {
namespace {

std::unique_ptr<Executor> Demo() {
  ExecutorOptions options;
  options.engine.model = DI_SOURCE_DIR "/models/demo";
  options.engine.threads = 1;
  options.engine.max_num_seqs = 3;
  return std::make_unique<Executor>(options);
}

Request Ask(TokenId first, int64_t max_tokens) {
  Request request;
  request.prompt = {0, first, 17};
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// Collects what the loop delivers.
class Mailbox {
 public:
  void Take(std::vector<EngineLoop::News> news) {
    const std::lock_guard lock(mutex_);
    for (EngineLoop::News& n : news) answers_[n.ticket].Append(n.delta);
    changed_.notify_all();
  }
  SequenceResult Await(EngineLoop::Ticket ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_[ticket].finish.has_value(); });
    return answers_[ticket];
  }
  void AwaitTokens(EngineLoop::Ticket ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !answers_[ticket].token_ids.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<EngineLoop::Ticket, SequenceResult> answers_;
};

TEST(EngineLoop, AnswersAreThoseOfAnEngineWhateverThreadsAsk) {
  const std::unique_ptr<Executor> executor = Demo();
  std::vector<SequenceResult> expected;
  {
    Engine engine(executor.get());
    for (TokenId first = 100; first < 112; ++first) {
      const RequestId id = engine.Submit(Ask(first, 5));
      SequenceResult& result = expected.emplace_back();
      while (!engine.idle()) {
        for (const Delta& delta : engine.Step()) {
          ASSERT_EQ(delta.id, id);
          result.Append(delta);
        }
      }
    }
  }
  Mailbox mailbox;
  EngineLoop loop(executor.get(),
                  [&](std::vector<EngineLoop::News> n) { mailbox.Take(std::move(n)); });
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([&, c] {
      for (int i = c; i < 12; i += 3) {
        const EngineLoop::Ticket other = loop.Submit(Ask(500, 200));
        const EngineLoop::Ticket ticket = loop.Submit(Ask(100 + i, 5));
        const SequenceResult answer = mailbox.Await(ticket);
        EXPECT_EQ(answer.token_ids, expected[static_cast<size_t>(i)].token_ids);
        EXPECT_EQ(answer.text, expected[static_cast<size_t>(i)].text);
        loop.Cancel(other);
        EXPECT_GE(loop.stats().engine.kv_used, 0);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST(EngineLoop, CancelledRequestsLeaveNothingBehind) {
  const std::unique_ptr<Executor> executor = Demo();
  const int64_t free_blocks = executor->kv().free_blocks();
  Mailbox mailbox;
  {
    EngineLoop loop(executor.get(),
                    [&](std::vector<EngineLoop::News> n) { mailbox.Take(std::move(n)); });
    const EngineLoop::Ticket running = loop.Submit(Ask(100, 1000));
    mailbox.AwaitTokens(running);
    loop.Cancel(running);
    loop.Cancel(loop.Submit(Ask(101, 1000)));  // perhaps before the engine has seen it
    loop.Cancel(12345);                        // unknown
    const EngineLoop::Ticket last = loop.Submit(Ask(102, 3));
    EXPECT_EQ(mailbox.Await(last).token_ids.size(), 3U);
    while (loop.stats().engine.n_running + loop.stats().engine.n_waiting > 0) {
    }
  }
  EXPECT_EQ(executor->kv().free_blocks(), free_blocks);
}

TEST(EngineLoop, RefusesAtOnce) {
  const std::unique_ptr<Executor> executor = Demo();
  EngineLoop loop(executor.get(), [](const std::vector<EngineLoop::News>&) {});
  EXPECT_THROW(loop.Submit(Ask(-1, 3)), Error);
  EXPECT_THROW(loop.Submit({}), Error);
}

TEST(EngineLoop, EndsInTheMiddleOfAnswers) {
  const std::unique_ptr<Executor> executor = Demo();
  Mailbox mailbox;
  EngineLoop loop(executor.get(),
                  [&](std::vector<EngineLoop::News> n) { mailbox.Take(std::move(n)); });
  mailbox.AwaitTokens(loop.Submit(Ask(100, 1000)));
}

}  // namespace
}  // namespace deepinfer
