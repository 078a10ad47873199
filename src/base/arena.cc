#include "base/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace deepinfer {

Buf ArenaPlan::Book(const char* name, int64_t bytes, int64_t align) {
  DI_CHECK(bytes >= 0) << name << " " << bytes;
  const Buf buf{(top_ + align - 1) / align * align, bytes};
  top_ = buf.offset + bytes;
  peak_ = std::max(peak_, top_);
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.name == name; });
  if (known == entries_.end()) {
    entries_.push_back({name, bytes});
  } else {
    known->bytes = std::max(known->bytes, bytes);
  }
  return buf;
}

int64_t ArenaPlan::BookedBytes(const std::string& prefix) const {
  int64_t sum = 0;
  for (const Entry& e : entries_) {
    if (e.name.starts_with(prefix)) sum += e.bytes;
  }
  return sum;
}

namespace {

// `bytes` at a multiple of `align`, both whole pages: maps more and gives the ends back.
void* MapAligned(size_t bytes, size_t align) {
  void* mapped = mmap(nullptr, bytes + align, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return MAP_FAILED;
  char* const begin = static_cast<char*>(mapped);
  const size_t front = (align - reinterpret_cast<uintptr_t>(begin) % align) % align;
  if (front > 0) munmap(begin, front);
  if (align > front) munmap(begin + front + bytes, align - front);
  return begin + front;
}

}  // namespace

Arena::Arena(const char* what, int64_t bytes)
    : bytes_((std::max<int64_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes) {
  const int64_t align = bytes_ >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  void* memory = MapAligned(static_cast<size_t>(bytes_), static_cast<size_t>(align));
  if (memory == MAP_FAILED) {
    throw Error(Code::kIo,
                fmt::format("{}: cannot get {:.1f} MiB of memory: {}", what,
                            static_cast<double>(bytes_) / (1 << 20), std::strerror(errno)));
  }
  base_ = static_cast<std::byte*>(memory);
  madvise(memory, static_cast<size_t>(bytes_),
          MADV_HUGEPAGE);  // only a wish: the result does not matter
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
}

Arena::Arena(Arena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace deepinfer
