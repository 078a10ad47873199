#include "base/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace deepinfer {
namespace {

constexpr int64_t kPage = 4096;

// Pages of an arena that exist.
int64_t ResidentPages(const Arena& arena) {
  std::vector<unsigned char> pages(static_cast<size_t>((arena.bytes() + kPage - 1) / kPage));
  EXPECT_EQ(mincore(arena.base(), static_cast<size_t>(arena.bytes()), pages.data()), 0);
  return std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; });
}

// Whoever writes first decides where a page lies, so nobody may have written before.
TEST(Arena, PagesAppearWhenTheyAreFirstTouched) {
  const Arena arena("test", 8 * kHugePageBytes + 1);
  EXPECT_EQ(ResidentPages(arena), 0);
  std::memset(arena.base() + 3 * kHugePageBytes, 1, 1);
  const int64_t touched = ResidentPages(arena);
  EXPECT_GE(touched, 1);
  EXPECT_LE(touched, kHugePageBytes / kPage);
}

TEST(Arena, LargeOnesBeginAtAHugePage) {
  for (int64_t bytes : {kHugePageBytes, kHugePageBytes + 1, 5 * kHugePageBytes}) {
    const Arena arena("test", bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.base()) % kHugePageBytes, 0u);
    EXPECT_GE(arena.bytes(), bytes);
    std::memset(arena.base(), 1, static_cast<size_t>(arena.bytes()));
  }
}

TEST(Arena, IsZeroToItsLastByte) {
  for (int64_t bytes : {int64_t{0}, int64_t{1}, kPage, kPage + 1, 3 * kHugePageBytes - 5}) {
    const Arena arena("test", bytes);
    EXPECT_TRUE(std::all_of(arena.base(), arena.base() + bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

}  // namespace
}  // namespace deepinfer
