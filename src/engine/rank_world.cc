#include "engine/rank_world.h"

#include <fmt/core.h>

#include <cstring>

#include "base/error.h"

namespace deepinfer {

namespace {

constexpr int64_t kFaultWords = sizeof(Fault) / sizeof(float);
constexpr int64_t kRecordBytes = 1 << 16;

LayoutOptions OfWorld(LayoutOptions layout, const Comm& world) {
  layout.ranks = world.size();
  return layout;
}

std::unique_ptr<Comm> SplitBy(Comm* world, int size, const char* name) {
  auto comm = world->Split(world->rank() / size, name);
  world->ThrowIfFailed();
  return comm;
}

}  // namespace

RankWorld::RankWorld(const ModelConfig& config, LayoutOptions layout, Comm* world)
    : layout_(config, OfWorld(std::move(layout), *world)),
      batch_(SplitBy(world, layout_.batch_size(), "batch")),
      attention_(SplitBy(world, layout_.attention_size(), "heads")),
      group_(SplitBy(world, layout_.group_size(), "output group")),
      ranks_{layout_, world->rank(), world, batch_.get(), attention_.get(), group_.get()},
      records_(world, kRecordBytes),
      faults_(static_cast<size_t>(world->size() * kFaultWords)) {
  for (int r = 0; r <= world->size(); ++r) fault_cuts_.push_back(r * kFaultWords);
}

void RankWorld::ExpectSame(const std::string& text) {
  std::string driver = text;
  int64_t bytes = std::ssize(text);
  ranks_.world->Broadcast(&bytes, sizeof bytes, 0);
  ranks_.world->ThrowIfFailed();
  driver.resize(static_cast<size_t>(bytes));
  ranks_.world->Broadcast(driver.data(), bytes, 0);
  ranks_.world->ThrowIfFailed();
  if (driver == text) return;
  throw Error(Code::kInvalid, fmt::format("rank {}: expected the options of rank 0 ({}), found {}",
                                          ranks_.rank, driver, text));
}

void RankWorld::BeginSteps(std::chrono::milliseconds deadline) {
  uint32_t word = 0;
  ranks_.world->Merge(&word, 1);
  ranks_.world->ThrowIfFailed();
  ranks_.world->SetDeadline(deadline);
}

Fault RankWorld::Share(const Fault& fault) {
  std::memcpy(faults_.data() + ranks_.rank * kFaultWords, &fault, sizeof fault);
  ranks_.world->Gather(faults_.data(), 1, std::ssize(faults_), fault_cuts_);
  ranks_.world->ThrowIfFailed();
  Fault first{};
  for (int r = 0; r < ranks_.world->size() && first.kind == Fault::kNone; ++r)
    std::memcpy(&first, faults_.data() + r * kFaultWords, sizeof first);
  return first;
}

CommStats RankWorld::TakeStats() {
  CommStats all;
  for (Comm* comm : {ranks_.world, batch_.get(), attention_.get(), group_.get()})
    all += comm->TakeStats();
  return all;
}

}  // namespace deepinfer
