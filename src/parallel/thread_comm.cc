#include "parallel/thread_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"

namespace deepinfer {

namespace {

// What all communicators of a world share.
struct World {
  explicit World(std::chrono::milliseconds limit) : deadline(limit) {}

  const std::chrono::milliseconds deadline;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> failure;
};

struct Board;

// What a rank shows to the others of its communicator during a call.
struct Place {
  bool here = false;
  void* data = nullptr;
  int color = 0;
  std::shared_ptr<Board> made;  // by Split, for the ranks of its color
};

// Where the ranks of one communicator meet, under the world's mutex. Between the two meetings of a
// call everybody may read the places and what they point to.
struct Board {
  Board(std::shared_ptr<World> w, std::string n, int ranks)
      : world(std::move(w)), name(std::move(n)), places(static_cast<size_t>(ranks)) {}

  const std::shared_ptr<World> world;
  const std::string name;
  std::vector<Place> places;
  CommCall call = {};  // of those who are here
  int n_here = 0;
  uint64_t n_meetings = 0;

  // The last to arrive lets all go on.
  void Meet() {
    for (Place& place : places) place.here = false;
    n_here = 0;
    ++n_meetings;
    world->changed.notify_all();
  }
};

class ThreadComm : public Comm {
 public:
  ThreadComm(std::shared_ptr<Board> board, int rank)
      : Comm(rank, static_cast<int>(board->places.size())), board_(std::move(board)) {}

  std::unique_ptr<Comm> Split(int color) override;

  void Abort(const std::string& why) override {
    const std::lock_guard lock(board_->world->mutex);
    Fail(why);
  }

  void ThrowIfFailed() const override {
    const std::lock_guard lock(board_->world->mutex);
    if (board_->world->failure) throw Error(Code::kIo, *board_->world->failure);
  }

 private:
  // Shows `data` and meets the others before a call; false: it fails.
  bool Enter(const CommCall& call, void* data, int color = 0);
  // Meets them after it: all have entered and only copy memory, so nobody is missing.
  void Leave();
  void Fail(const std::string& why);
  std::string Expired(const CommCall& call) const;

  template <class T>
  T* Data(int of) const {
    return static_cast<T*>(board_->places[static_cast<size_t>(of)].data);
  }

  void DoMerge(const CommCall& call, uint32_t* words, int64_t n) override;
  void DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                std::span<const int64_t> cuts) override;
  void DoBroadcast(const CommCall& call, void* data, int64_t bytes) override;

  const std::shared_ptr<Board> board_;
  int64_t n_calls_ = 0;
};

void ThreadComm::Fail(const std::string& why) {
  World& world = *board_->world;
  if (!world.failure) world.failure = why;
  world.changed.notify_all();
}

std::string ThreadComm::Expired(const CommCall& call) const {
  std::string missing;
  for (size_t r = 0; r < board_->places.size(); ++r) {
    if (!board_->places[r].here) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
  }
  return fmt::format("call {} of {} ({}, {} bytes): expected {} ranks within {} ms, missing {}",
                     n_calls_, board_->name, call.name(), call.bytes, size(),
                     board_->world->deadline.count(), missing);
}

bool ThreadComm::Enter(const CommCall& call, void* data, int color) {
  ++n_calls_;
  World& world = *board_->world;
  Board& board = *board_;
  std::unique_lock lock(world.mutex);
  if (world.failure) return false;
  if (board.n_here > 0 && !(board.call == call)) {
    Fail(fmt::format("call {} of {}: rank {} calls {} with {} bytes, others {} with {}", n_calls_,
                     board.name, rank(), call.name(), call.bytes, board.call.name(),
                     board.call.bytes));
    return false;
  }
  board.call = call;
  Place& own = board.places[static_cast<size_t>(rank())];
  own.here = true, own.data = data, own.color = color;
  const uint64_t seen = board.n_meetings;
  if (++board.n_here == size()) {
    board.Meet();
    return true;
  }
  const auto done = [&] { return board.n_meetings != seen || world.failure.has_value(); };
  if (call.root >= 0 && call.root != rank()) {
    world.changed.wait(lock, done);
  } else if (!world.changed.wait_for(lock, world.deadline, done)) {
    Fail(Expired(call));
  }
  return board.n_meetings != seen;
}

void ThreadComm::Leave() {
  Board& board = *board_;
  std::unique_lock lock(board.world->mutex);
  const uint64_t seen = board.n_meetings;
  if (++board.n_here == size())
    board.Meet();
  else
    board.world->changed.wait(lock, [&] { return board.n_meetings != seen; });
}

// Each rank joins its part of all buffers and writes the result to all of them.
void ThreadComm::DoMerge(const CommCall& call, uint32_t* words, int64_t n) {
  if (!Enter(call, words)) return;
  const int64_t begin = n * rank() / size(), end = n * (rank() + 1) / size();
  for (int64_t i = begin; i < end; ++i) {
    uint32_t word = 0;
    for (int r = 0; r < size(); ++r) word |= Data<uint32_t>(r)[i];
    for (int r = 0; r < size(); ++r) Data<uint32_t>(r)[i] = word;
  }
  Leave();
}

void ThreadComm::DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                          std::span<const int64_t> cuts) {
  if (!Enter(call, rows)) return;
  const auto own = static_cast<size_t>(rank());
  for (int to = 0; to < size(); ++to) {
    if (to == rank()) continue;
    for (int64_t r = 0; r < n_rows; ++r) {
      const float* from = rows + r * stride;
      std::copy(from + cuts[own], from + cuts[own + 1], Data<float>(to) + r * stride + cuts[own]);
    }
  }
  Leave();
}

void ThreadComm::DoBroadcast(const CommCall& call, void* data, int64_t bytes) {
  if (!Enter(call, data)) return;
  if (rank() != call.root && bytes > 0)
    std::memcpy(data, Data<void>(call.root), static_cast<size_t>(bytes));
  Leave();
}

std::unique_ptr<Comm> ThreadComm::Split(int color) {
  if (!Enter({CommCall::Op::kSplit}, nullptr, color)) return nullptr;
  std::vector<Place>& places = board_->places;
  const auto same = [&](const Place& p) { return p.color == color; };
  const auto first = std::find_if(places.begin(), places.end(), same),
             own = places.begin() + rank();
  if (first == own) {
    own->made = std::make_shared<Board>(
        board_->world, fmt::format("{}.{}", board_->name, color),
        static_cast<int>(std::count_if(places.begin(), places.end(), same)));
  }
  Leave();
  auto comm =
      std::make_unique<ThreadComm>(first->made, static_cast<int>(std::count_if(first, own, same)));
  Leave();
  return comm;
}

}  // namespace

std::vector<std::unique_ptr<Comm>> MakeThreadWorld(int ranks, std::chrono::milliseconds deadline) {
  const auto world = std::make_shared<World>(deadline);
  const auto board = std::make_shared<Board>(world, "world", ranks);
  std::vector<std::unique_ptr<Comm>> comms;
  for (int r = 0; r < ranks; ++r) comms.push_back(std::make_unique<ThreadComm>(board, r));
  return comms;
}

}  // namespace deepinfer
