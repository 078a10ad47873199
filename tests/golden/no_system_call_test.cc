// Steps make no system call but futex: they run under a filter that ends the process at any other.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "engine/executor.h"

namespace deepinfer {
namespace {

// From here on every thread of the process may make these system calls only; any other raises
// SIGSYS.
bool ForbidSystemCalls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

constexpr int kDone = 0, kNoFilter = 3, kFailed = 4;

// Runs body in a child process and returns how that ended, as waitpid says it.
int InChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception&) {
      _exit(kFailed);
    }
    _exit(kDone);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

void Expect(int code, int status) {
  EXPECT_FALSE(WIFSIGNALED(status)) << "ended by signal " << WTERMSIG(status)
                                    << (WTERMSIG(status) == SIGSYS ? ", a system call" : "");
  EXPECT_EQ(WEXITSTATUS(status), code) << kNoFilter << ": the kernel refuses the filter";
}

TEST(NoSystemCall, TheFilterStopsOne) {
  const int status = InChild([] {
    if (!ForbidSystemCalls()) _exit(kNoFilter);
    syscall(SYS_getppid);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
}

// Prompt chunks, decode steps of two sequences, and drafts.
void RunSteps(Executor* executor, int64_t begin, int64_t end, std::span<const TokenId> text,
              std::span<const SeqSlot> slots) {
  for (int64_t step = begin; step < end; ++step) {
    SeqRows rows[2];
    DraftSeq drafts[2];
    const int64_t ends[2] = {step + 1, step + 8};
    for (size_t s = 0; s < 2; ++s) {
      rows[s] = {slots[s], text.first(static_cast<size_t>(ends[s])),
                 executor->kv().length(slots[s]), 1};
    }
    executor->Step(rows);
    for (size_t s = 0; s < 2; ++s) {
      executor->kv().SetLength(slots[s], ends[s]);
      drafts[s] = {slots[s], text[static_cast<size_t>(step)], 0.5f, 1, 0, Stream::kTarget};
    }
    executor->Draft(drafts);
  }
}

void HundredSteps(const char* numerics, int threads) {
  Executor executor(
      {.engine = {.model = std::string(DI_SOURCE_DIR) + "/build/testdata/checkpoints/tiny",
                  .max_model_len = 128,
                  .max_num_batched_tokens = 16,
                  .max_num_seqs = 2,
                  .threads = threads,
                  .numerics = numerics},
       .all_logits = false,
       .progress = {}});
  std::vector<TokenId> text;
  for (int i = 0; i < 128; ++i) text.push_back((i * 37 + 5) % 600);
  const SeqSlot slots[2] = {executor.kv().Open(), executor.kv().Open()};
  for (SeqSlot slot : slots) {
    if (!executor.kv().Reserve(slot, 128)) _exit(kFailed);
  }
  RunSteps(&executor, 0, 1, text, slots);  // a new thread makes calls until its first step
  if (!ForbidSystemCalls()) _exit(kNoFilter);
  RunSteps(&executor, 1, 101, text, slots);
  _exit(kDone);  // without destructors, which give memory back
}

TEST(NoSystemCall, HundredStepsOfTwoSequences) {
  for (const char* numerics : {"release", "fp32"}) {
    for (int threads : {1, 2, 4}) {
      SCOPED_TRACE(std::string(numerics) + ", threads " + std::to_string(threads));
      Expect(kDone, InChild([&] { HundredSteps(numerics, threads); }));
    }
  }
}

}  // namespace
}  // namespace deepinfer
