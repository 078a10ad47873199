#include "engine/rank_records.h"

#include <fmt/core.h>

#include <algorithm>
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
  bytes_.reserve(static_cast<size_t>(std::max(bytes, kFirstBytes)));
}

std::span<const std::byte> RankRecords::payload() const {
  return std::span(bytes_).subspan(sizeof header_, static_cast<size_t>(header_.bytes));
}

void RankRecords::Begin(Kind kind) {
  ++header_.number;
  header_.kind = kind;
  bytes_.resize(sizeof header_);
}

void RankRecords::Put(const void* data, int64_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), from, from + bytes);
}

void RankRecords::Exchange(int64_t begin, int64_t end) {
  if (begin < end) world_->Broadcast(bytes_.data() + begin, end - begin, 0);
}

void RankRecords::Send() {
  const int64_t end = std::ssize(bytes_);
  header_.bytes = end - static_cast<int64_t>(sizeof header_);
  header_.crc = Crc32c(payload());
  std::memcpy(bytes_.data(), &header_, sizeof header_);
  bytes_.resize(static_cast<size_t>(std::max(end, kFirstBytes)));
  Exchange(0, kFirstBytes);
  Exchange(kFirstBytes, end);
}

RankRecords::Kind RankRecords::Receive() {
  const uint64_t expected = header_.number + 1;
  bytes_.resize(kFirstBytes);
  Exchange(0, kFirstBytes);
  world_->ThrowIfFailed();
  std::memcpy(&header_, bytes_.data(), sizeof header_);
  const int64_t end = static_cast<int64_t>(sizeof header_) + header_.bytes;
  bytes_.resize(static_cast<size_t>(std::max(end, kFirstBytes)));
  Exchange(kFirstBytes, end);
  world_->ThrowIfFailed();
  if (header_.number != expected || header_.crc != Crc32c(payload())) {
    throw Error(Code::kCorrupt,
                fmt::format("rank {}: expected record {} whole, found {}{}", world_->rank(),
                            expected, header_.number,
                            header_.crc == Crc32c(payload()) ? "" : " with another checksum"));
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
  std::memcpy(data, payload().data() + taken_, static_cast<size_t>(bytes));
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
