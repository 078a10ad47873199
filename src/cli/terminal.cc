#include "cli/terminal.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "cli/flags.h"
#include "engine/rank_load.h"

namespace deepinfer {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

// Waits until standard input can be read; false when Ctrl-C came first. SIGINT is let in only while
// ppoll waits: in front of a plain read() it would be noticed one line late.
bool WaitForInput() {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  pollfd input{0, POLLIN, 0};
  if (interrupted == 0) ppoll(&input, 1, nullptr, &before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return !TakeInterrupt();
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

bool TakeInterrupt() {
  const bool taken = interrupted != 0;
  interrupted = 0;
  return taken;
}

StatusLine::StatusLine() : is_terminal_(isatty(2) != 0) {}

void StatusLine::Show(std::string_view text) {
  if (!is_terminal_) return;
  fmt::print(stderr, "\r{:<{}}", text, width_);
  std::fflush(stderr);
  width_ = text.size();
}

void StatusLine::Clear() {
  if (width_ == 0) return;
  fmt::print(stderr, "\r{:{}}\r", "", width_);
  std::fflush(stderr);
  width_ = 0;
}

std::unique_ptr<Executor> LoadModel(const EngineOptions& options, Comm* world, bool all_logits) {
  StatusLine status;
  ExecutorOptions executor_options;
  executor_options.engine = options;
  executor_options.all_logits = all_logits;
  executor_options.world = world;
  if (world != nullptr) SendLoad(executor_options);
  executor_options.progress = [&status](std::string_view what) {
    status.Show(fmt::format("loading: {}", what));
  };
  auto executor = std::make_unique<Executor>(executor_options);
  status.Clear();
  WarnUnused(executor->unused_tensors(), executor->model_dir());
  return executor;
}

void ShowPrompt(const Engine& engine, RequestId id, int64_t prompt_tokens, StatusLine* status) {
  const int64_t done = engine.n_computed(id);
  if (done > 0 && done < prompt_tokens)
    status->Show(fmt::format("prompt {}/{} tokens", done, prompt_tokens));
}

LineReader::End LineReader::Read(std::string* line) {
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos || (at_end_ && !buffer_.empty())) {
      *line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      return End::kLine;
    }
    if (at_end_) return End::kEndOfInput;
    if (!WaitForInput()) return End::kInterrupt;
    char chunk[4096];
    const ssize_t n = read(0, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw Error(Code::kIo,
                  fmt::format("standard input: expected a line, found: {}", std::strerror(errno)));
    }
    if (n == 0) at_end_ = true;
    buffer_.append(chunk, static_cast<size_t>(n));
  }
}

}  // namespace deepinfer
