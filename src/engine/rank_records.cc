#include "engine/rank_records.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <span>

#include "base/error.h"

namespace deepinfer {

static_assert(sizeof(StepInputs) == 232, "is what changed in StepInputs part of ForEachInput?");

namespace {

constexpr uint32_t kCastagnoli = 0x82f63b78;  // CRC-32C, bits reversed

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kCastagnoli : 0);
    table[i] = value;
  }
  return table;
}();

uint32_t Crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const std::byte b : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<uint8_t>(b)) & 255];
  return ~crc;
}

}  // namespace

RankRecords::RankRecords(Comm* world, int64_t bytes) : world_(world) {
  payload_.reserve(static_cast<size_t>(bytes));
}

void RankRecords::Begin(Kind kind) {
  ++header_.number;
  header_.kind = kind;
  payload_.clear();
}

void RankRecords::Put(const void* data, int64_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  payload_.insert(payload_.end(), from, from + bytes);
}

void RankRecords::Send() {
  header_.bytes = std::ssize(payload_);
  header_.crc = Crc32c(payload_);
  world_->Broadcast(&header_, sizeof header_, 0);
  world_->Broadcast(payload_.data(), header_.bytes, 0);
}

RankRecords::Kind RankRecords::Receive() {
  const uint64_t expected = header_.number + 1;
  world_->Broadcast(&header_, sizeof header_, 0);
  world_->ThrowIfFailed();
  payload_.resize(static_cast<size_t>(header_.bytes));
  world_->Broadcast(payload_.data(), header_.bytes, 0);
  world_->ThrowIfFailed();
  if (header_.number != expected || header_.crc != Crc32c(payload_)) {
    throw Error(Code::kCorrupt,
                fmt::format("rank {}: expected record {} whole, found {}{}", world_->rank(),
                            expected, header_.number,
                            header_.crc == Crc32c(payload_) ? "" : " with another checksum"));
  }
  taken_ = 0;
  return header_.kind;
}

void RankRecords::Take(void* data, int64_t bytes) {
  if (bytes < 0 || bytes > header_.bytes - taken_) {
    throw Error(Code::kCorrupt,
                fmt::format("rank {}: record {}: expected {} bytes more, found {}", world_->rank(),
                            header_.number, bytes, header_.bytes - taken_));
  }
  std::memcpy(data, payload_.data() + taken_, static_cast<size_t>(bytes));
  taken_ += bytes;
}

void RankRecords::SkipRest() { taken_ = header_.bytes; }

void RankRecords::End() {
  if (taken_ != header_.bytes) {
    throw Error(Code::kCorrupt, fmt::format("rank {}: record {}: expected {} bytes, found {}",
                                            world_->rank(), header_.number, taken_, header_.bytes));
  }
}

}  // namespace deepinfer
