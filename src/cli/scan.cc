#include "cli/scan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "config/shape_table.h"

namespace deepinfer {
namespace {

constexpr int64_t kChunkElements = 1 << 20;

// Counts bad elements of data[0, n) and finds the first; -1 when there is none.
template <class Bits, class IsBad>
void Count(const uint8_t* data, int64_t n, IsBad is_bad, int64_t* count, int64_t* first) {
  int64_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    bad += is_bad(bits) ? 1 : 0;
  }
  *count = bad;
  *first = -1;
  for (int64_t i = 0; bad > 0 && *first < 0; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    if (is_bad(bits)) *first = i;
  }
}

bool IsScale(const StoredTensor& t) {
  return t.dtype == "F8_E8M0" || (t.dtype == "U8" && t.name.ends_with(".scale"));
}

void CountChunk(const StoredTensor& t, const uint8_t* data, int64_t n, int64_t* count,
                int64_t* first) {
  if (IsScale(t)) {
    Count<uint8_t>(
        data, n, [](uint8_t b) { return b == 255; }, count, first);
  } else if (t.dtype == "F8_E4M3") {
    Count<uint8_t>(
        data, n, [](uint8_t b) { return (b & 0x7f) == 0x7f; }, count, first);
  } else if (t.dtype == "BF16") {
    Count<uint16_t>(
        data, n, [](uint16_t b) { return (b & 0x7f80) == 0x7f80; }, count, first);
  } else if (t.dtype == "F32") {
    Count<uint32_t>(
        data, n, [](uint32_t b) { return (b & 0x7f800000) == 0x7f800000; }, count, first);
  } else {  // packed fp4 and types the model does not use: only read
    Count<uint8_t>(
        data, n * StoredTypeBytes(t.dtype), [](uint8_t) { return false; }, count, first);
  }
}

}  // namespace

std::string ScanFinding::Sentence() const {
  std::vector<int64_t> at(shape.size());
  int64_t rest = first, total = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = rest % shape[d];
    rest /= shape[d];
    total *= shape[d];
  }
  return fmt::format("{}: {} of {} values are not finite, the first at [{}]", tensor, count, total,
                     fmt::join(at, ", "));
}

std::vector<ScanFinding> ScanCheckpoint(const Checkpoint& checkpoint,
                                        const std::function<void(int64_t)>& progress) {
  std::vector<ScanFinding> findings;
  int64_t done = 0;
  for (const StoredTensor& t : checkpoint.tensors()) {
    const int64_t width = StoredTypeBytes(t.dtype);
    ScanFinding finding{t.name, 0, 0, t.shape};
    for (int64_t begin = 0; begin < t.bytes / width; begin += kChunkElements) {
      const int64_t n = std::min(kChunkElements, t.bytes / width - begin);
      int64_t count = 0, first = 0;
      CountChunk(t, t.data + begin * width, n, &count, &first);
      if (count > 0 && finding.count == 0) finding.first = begin + first;
      finding.count += count;
      done += n * width;
      progress(done);
    }
    if (finding.count > 0) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace deepinfer
