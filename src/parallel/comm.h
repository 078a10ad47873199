// Comm: the ranks of a world, or some of them, that exchange words (docs/ranks.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace deepinfer {

// What a rank is about to do: the ranks of a call must agree.
struct CommCall {
  enum class Op : uint8_t { kMerge, kGather, kBroadcast, kSplit };
  Op op;
  int64_t bytes = 0;  // of this rank's buffer
  int root = -1;
  const char* name() const;
  bool operator==(const CommCall&) const = default;
};

// Every rank of a communicator makes the same calls in the same order. A call that cannot end (a
// rank is gone, late, or calls something else) fails within the deadline: what its data hold is
// unspecified, and from then on every call on any communicator of this world returns at once.
// Nothing is thrown, so that the threads of a step still meet at their barriers: whoever ran the
// step asks ThrowIfFailed afterwards. One caller at a time.
class Comm {
 public:
  virtual ~Comm() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Every word becomes the bitwise or of what the ranks hold: where one rank sets a value and the
  // others zero, exactly that value.
  void Merge(uint32_t* words, int64_t n);

  // Rows of `stride` words of which rank p has set [cuts[p], cuts[p + 1]): afterwards all have all.
  void Gather(float* rows, int64_t n_rows, int64_t stride, std::span<const int64_t> cuts);

  // All get what `root` holds. The others wait for it without a deadline: it may be idle.
  void Broadcast(void* data, int64_t bytes, int root);

  // A communicator of the ranks that name the same color, in the same order; null on failure.
  virtual std::unique_ptr<Comm> Split(int color) = 0;

  // Makes every call of this world fail, on all ranks.
  virtual void Abort(const std::string& why) = 0;
  // Throws Error(kIo) naming the call that failed, the communicator and who is missing.
  virtual void ThrowIfFailed() const = 0;

 protected:
  Comm(int rank, int size) : rank_(rank), size_(size) {}

 private:
  virtual void DoMerge(const CommCall& call, uint32_t* words, int64_t n) = 0;
  virtual void DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                        std::span<const int64_t> cuts) = 0;
  virtual void DoBroadcast(const CommCall& call, void* data, int64_t bytes) = 0;

  const int rank_, size_;
};

}  // namespace deepinfer
