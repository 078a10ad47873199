#include "parallel/comm.h"

#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace deepinfer {

const char* CommCall::name() const {
  static constexpr const char* kNames[] = {"merge", "sum", "gather", "broadcast", "split"};
  return kNames[static_cast<size_t>(op)];
}

CommStats& CommStats::operator+=(const CommStats& other) {
  calls += other.calls, bytes += other.bytes, nanoseconds += other.nanoseconds;
  wait_nanoseconds += other.wait_nanoseconds;
  return *this;
}

template <class Do>
void Comm::Count(const CommCall& call, const Do& call_it) {
  const auto begin = std::chrono::steady_clock::now();
  call_it();
  ++stats_.calls;
  stats_.bytes += call.bytes;
  stats_.nanoseconds += (std::chrono::steady_clock::now() - begin) / std::chrono::nanoseconds(1);
}

void Comm::Merge(uint32_t* words, int64_t n) {
  const CommCall call{CommCall::Op::kMerge, n * 4};
  Count(call, [&] { DoMerge(call, words, n); });
}

void Comm::Sum(float* values, int64_t n) {
  const CommCall call{CommCall::Op::kSum, n * 4};
  Count(call, [&] { DoMerge(call, reinterpret_cast<uint32_t*>(values), n); });
}

void Comm::Gather(float* rows, int64_t n_rows, int64_t stride, std::span<const int64_t> cuts) {
  const CommCall call{CommCall::Op::kGather, n_rows * cuts.back() * 4};
  Count(call, [&] { DoGather(call, rows, n_rows, stride, cuts); });
}

void Comm::Broadcast(void* data, int64_t bytes, int root) {
  const CommCall call{CommCall::Op::kBroadcast, bytes, root};
  Count(call, [&] { DoBroadcast(call, data, bytes); });
}

void Comm::ThrowIfFailed() const {
  if (const std::optional<std::string> why = failure()) throw Error(Code::kIo, *why);
}

void JoinWords(CommCall::Op op, uint32_t* to, const std::byte* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t word;
    std::memcpy(&word, from + i * 4, sizeof word);
    to[i] = op == CommCall::Op::kMerge
                ? to[i] | word
                : std::bit_cast<uint32_t>(std::bit_cast<float>(to[i]) + std::bit_cast<float>(word));
  }
}

CommStats Comm::TakeStats() { return std::exchange(stats_, {}); }

}  // namespace deepinfer
