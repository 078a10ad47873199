#include "parallel/mpi_session.h"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace deepinfer {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailureStatus = 2;  // of the program, as after any other error

// What all communicators of the world share.
struct World {
  explicit World(std::chrono::milliseconds limit) : deadline(limit) {}

  const std::chrono::milliseconds deadline;
  std::optional<std::string> failure;
};

int RankOf(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int SizeOf(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

class MpiComm : public Comm {
 public:
  MpiComm(std::shared_ptr<World> world, std::string name, MPI_Comm comm)
      : Comm(RankOf(comm), SizeOf(comm)),
        world_(std::move(world)),
        name_(std::move(name)),
        comm_(comm) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }

  std::unique_ptr<Comm> Split(int color) override {
    MPI_Comm part = MPI_COMM_NULL;
    if (world_->failure ||
        !IsFine({CommCall::Op::kSplit}, MPI_Comm_split(comm_, color, rank(), &part)))
      return nullptr;
    return std::make_unique<MpiComm>(world_, fmt::format("{}.{}", name_, color), part);
  }

  void Abort(const std::string& why) override {
    if (!world_->failure) world_->failure = why;
    fmt::print(stderr, "deepinfer: {}\n", why);
    MPI_Abort(MPI_COMM_WORLD, kFailureStatus);
  }

  void ThrowIfFailed() const override {
    if (world_->failure) throw Error(Code::kIo, *world_->failure);
  }

 private:
  std::string CallName(const CommCall& call) const {
    return fmt::format("rank {}: call {} of {} ({}, {} bytes)", rank(), n_calls_, name_,
                       call.name(), call.bytes);
  }

  bool IsFine(const CommCall& call, int code) {
    if (code == MPI_SUCCESS) return true;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    world_->failure = fmt::format("{}: {}", CallName(call),
                                  std::string(text.data(), static_cast<size_t>(length)));
    return false;
  }

  // A call has begun with `code`; false: it did not end in time.
  bool Finish(const CommCall& call, int code, MPI_Request* request);

  void DoMerge(const CommCall& call, uint32_t* words, int64_t n) override {
    if (world_->failure) return;
    MPI_Request request;
    ++n_calls_;
    Finish(call,
           MPI_Iallreduce(MPI_IN_PLACE, words, static_cast<int>(n), MPI_UINT32_T, MPI_BOR, comm_,
                          &request),
           &request);
  }

  void DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                std::span<const int64_t> cuts) override;

  void DoBroadcast(const CommCall& call, void* data, int64_t bytes) override {
    if (world_->failure) return;
    MPI_Request request;
    ++n_calls_;
    Finish(call, MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, call.root, comm_, &request),
           &request);
  }

  const std::shared_ptr<World> world_;
  const std::string name_;
  const MPI_Comm comm_;
  int64_t n_calls_ = 0;
  std::vector<float> packed_;  // the columns of rank 0, then those of rank 1, ...
  std::vector<int> counts_, begins_;
};

// Polls without a pause while the others are likely to be at work on the same call, then leaves the
// core to them.
bool MpiComm::Finish(const CommCall& call, int code, MPI_Request* request) {
  constexpr int kEager = 200;
  const bool patient = call.root >= 0 && call.root != rank();
  const Clock::time_point begin = Clock::now();
  for (int i = 0;; ++i) {
    if (!IsFine(call, code)) return false;
    int done = 0;
    code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && done) return true;
    if (i < kEager) continue;
    const Clock::duration waited = Clock::now() - begin;
    if (!patient && waited > world_->deadline) {
      world_->failure = fmt::format("{}: expected {} ranks within {} ms", CallName(call), size(),
                                    world_->deadline.count());
      return false;
    }
    if (waited < std::chrono::milliseconds(20))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void MpiComm::DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                       std::span<const int64_t> cuts) {
  if (world_->failure) return;
  const auto ranks = static_cast<size_t>(size()), own = static_cast<size_t>(rank());
  packed_.resize(static_cast<size_t>(n_rows * cuts.back()));
  counts_.resize(ranks), begins_.resize(ranks);
  for (size_t p = 0; p < ranks; ++p) {
    counts_[p] = static_cast<int>(n_rows * (cuts[p + 1] - cuts[p]));
    begins_[p] = static_cast<int>(n_rows * cuts[p]);
  }
  // Columns of rank p, between the rows and their packed copy.
  const auto columns = [&](size_t p, auto copy) {
    const int64_t width = cuts[p + 1] - cuts[p];
    for (int64_t r = 0; r < n_rows; ++r)
      copy(rows + r * stride + cuts[p], packed_.data() + begins_[p] + r * width,
           static_cast<size_t>(width) * sizeof(float));
  };
  columns(own, [](float* row, float* packed, size_t bytes) { std::memcpy(packed, row, bytes); });
  MPI_Request request;
  ++n_calls_;
  const int code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, packed_.data(), counts_.data(),
                                   begins_.data(), MPI_FLOAT, comm_, &request);
  if (!Finish(call, code, &request)) return;
  for (size_t p = 0; p < ranks; ++p) {
    if (p == own) continue;
    columns(p, [](float* row, float* packed, size_t bytes) { std::memcpy(row, packed, bytes); });
  }
}

}  // namespace

MpiSession::MpiSession(std::chrono::milliseconds deadline) {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_FUNNELED)
    throw Error(Code::kIo, "MPI: expected calls from the main thread of several, found none");
  world_ = std::make_unique<MpiComm>(std::make_shared<World>(deadline), "world", MPI_COMM_WORLD);
}

MpiSession::~MpiSession() {
  if (!ended_) MPI_Abort(MPI_COMM_WORLD, kFailureStatus);
}

void MpiSession::End() {
  ended_ = true;
  MPI_Finalize();
}

}  // namespace deepinfer
