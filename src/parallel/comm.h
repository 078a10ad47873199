// Comm: the ranks of a world, or some of them, that exchange words (docs/ranks.md).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace deepinfer {

// What a rank is about to do: the ranks of a call must agree.
struct CommCall {
  enum class Op : int32_t { kMerge, kSum, kGather, kBroadcast, kSplit };
  Op op;
  int64_t bytes = 0;  // of this rank's buffer
  int root = -1;
  const char* name() const;
  bool operator==(const CommCall&) const = default;
};

// What the calls of one communicator took on this rank; part of the time are waits for ranks of
// the same host that came later, or, of large merges, copy longer.
struct CommStats {
  int64_t calls = 0, bytes = 0, nanoseconds = 0, wait_nanoseconds = 0;
  CommStats& operator+=(const CommStats& other);
};

// Every rank of a communicator makes the same calls in the same order. A call that cannot end (a
// rank is gone, stopped, late, or calls something else) fails within the deadline: what its data
// hold is unspecified, and from then on every call on any communicator of this world returns at
// once. Nothing is thrown, so that the threads of a step still meet at their barriers: whoever ran
// the step asks ThrowIfFailed afterwards. One caller at a time.
class Comm {
 public:
  virtual ~Comm() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Every word becomes the bitwise or of what the ranks hold: where one rank sets a value and the
  // others zero, exactly that value.
  void Merge(uint32_t* words, int64_t n);

  // Every value becomes the sum of what the ranks hold, added in rank order; over several hosts
  // each adds its own first.
  void Sum(float* values, int64_t n);

  // Rows of `stride` words of which rank p has set [cuts[p], cuts[p + 1]): afterwards all have all.
  void Gather(float* rows, int64_t n_rows, int64_t stride, std::span<const int64_t> cuts);

  // All get what `root` holds. The others wait for it without a deadline: it may be idle. They
  // notice when its process is gone, or stopped for longer than the deadline.
  void Broadcast(void* data, int64_t bytes, int root);

  // A communicator of the ranks that say the same color, in the same order; null on failure. In
  // sentences it is "<name> <color>".
  virtual std::unique_ptr<Comm> Split(int color, const std::string& name) = 0;

  // Of this rank's waits, on all communicators of the world.
  virtual void SetDeadline(std::chrono::milliseconds deadline) = 0;

  // Makes every call of this world fail, on all ranks.
  virtual void Abort(const std::string& why) = 0;
  // The sentence that names the call that failed, the communicator and who is missing.
  virtual std::optional<std::string> failure() const = 0;
  // Throws it as Error(kIo).
  void ThrowIfFailed() const;

  // Since the last TakeStats.
  CommStats TakeStats();

 protected:
  Comm(int rank, int size) : rank_(rank), size_(size) {}
  void AddWait(std::chrono::nanoseconds time) { stats_.wait_nanoseconds += time.count(); }

 private:
  // Joins words as call.op says: kMerge or kSum.
  virtual void DoMerge(const CommCall& call, uint32_t* words, int64_t n) = 0;
  virtual void DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                        std::span<const int64_t> cuts) = 0;
  virtual void DoBroadcast(const CommCall& call, void* data, int64_t bytes) = 0;
  template <class Do>
  void Count(const CommCall& call, const Do& call_it);

  const int rank_, size_;
  CommStats stats_;
};

// to = to joined with `from`, n words at any address, as a call does it: bitwise or, or the sum of
// floats.
void JoinWords(CommCall::Op op, uint32_t* to, const std::byte* from, int64_t n);

// Part of a matrix as a sequence of words, for copies through buffers: columns [begin, end) of
// rows of `stride` words.
struct ColumnWords {
  float* rows;
  int64_t n_rows, stride, begin, end;

  int64_t size() const { return n_rows * (end - begin); }
  // Words [first, first + n) of the sequence; copy(words here, position behind first, count).
  template <class Copy>
  void ForEachRun(int64_t first, int64_t n, const Copy& copy) const {
    const int64_t width = end - begin;
    for (int64_t done = 0; done < n;) {
      const int64_t row = (first + done) / width, column = (first + done) % width;
      const int64_t count = std::min(width - column, n - done);
      copy(rows + row * stride + begin + column, done, count);
      done += count;
    }
  }
};

}  // namespace deepinfer
