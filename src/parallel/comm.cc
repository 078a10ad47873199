#include "parallel/comm.h"

namespace deepinfer {

const char* CommCall::name() const {
  static constexpr const char* kNames[] = {"merge", "gather", "broadcast", "split"};
  return kNames[static_cast<size_t>(op)];
}

void Comm::Merge(uint32_t* words, int64_t n) { DoMerge({CommCall::Op::kMerge, n * 4}, words, n); }

void Comm::Gather(float* rows, int64_t n_rows, int64_t stride, std::span<const int64_t> cuts) {
  DoGather({CommCall::Op::kGather, n_rows * stride * 4}, rows, n_rows, stride, cuts);
}

void Comm::Broadcast(void* data, int64_t bytes, int root) {
  DoBroadcast({CommCall::Op::kBroadcast, bytes, root}, data, bytes);
}

}  // namespace deepinfer
