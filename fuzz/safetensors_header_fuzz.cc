// Any bytes as a safetensors file, and the same bytes as an index: a table that covers the file
// exactly, or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const int64_t bytes = static_cast<int64_t>(size);
  try {
    const SafetensorsHeader header = ParseSafetensorsHeader(data, bytes, "fuzz");
    int64_t end = header.data_start;
    for (const HeaderTensor& t : header.tensors) {
      DI_CHECK(t.begin >= 0 && t.begin <= t.end && header.data_start + t.begin == end) << t.name;
      end = header.data_start + t.end;
    }
    DI_CHECK(end == bytes);
  } catch (const Error&) {
  }
  try {
    for (const auto& [name, shard] :
         ParseIndex({reinterpret_cast<const char*>(data), size}, "fuzz")) {
      DI_CHECK(shard.find('/') == std::string::npos && !shard.empty()) << name;
    }
  } catch (const Error&) {
  }
  return 0;
}
