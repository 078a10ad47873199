// What commands need of a terminal: Ctrl-C and a line that says how far they are.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace deepinfer {

// Exit status of a command that was ended by Ctrl-C, as shells count it.
inline constexpr int kInterruptedStatus = 130;

// From now on Ctrl-C does not end the program; it makes TakeInterrupt return true once.
void CatchInterrupts();
bool TakeInterrupt();

// A line on standard error that is written over and over; nothing at all when that is no terminal.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { Clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void Show(std::string_view text);
  // Makes room for ordinary output.
  void Clear();

 private:
  bool is_terminal_;
  size_t width_ = 0;  // of what is shown
};

// Loads a model, saying on the terminal what is being done; warns of tensors that are not used.
// world: the ranks of an mpirun, of which this is rank 0, or null. all_logits: see ExecutorOptions.
std::unique_ptr<Executor> LoadModel(const EngineOptions& options, Comm* world,
                                    bool all_logits = false);

// Progress of a prompt that takes more than one step: "prompt 1024/8192 tokens".
void ShowPrompt(const Engine& engine, RequestId id, int64_t prompt_tokens, StatusLine* status);

// Lines of standard input.
class LineReader {
 public:
  enum class End { kLine, kEndOfInput, kInterrupt };
  // Reads the next line, without its line break. Throws Error kIo when reading fails.
  End Read(std::string* line);

 private:
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace deepinfer
