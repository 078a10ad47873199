// Any bytes as config.json: an Error, or a config whose tensors all have a positive number of
// bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "config/model_config.h"
#include "config/shape_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  try {
    const ModelConfig c = ModelConfig::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    // The table of a valid config may have a million entries, which is too slow to build for every
    // input.
    if (c.num_hidden_layers * c.n_routed_experts +
            c.num_nextn_predict_layers * c.dspark_n_routed_experts >
        4096)
      return 0;
    int64_t total = 0;
    for (const TensorSpec& t : ShapeTable(c)) {
      DI_CHECK(t.bytes() > 0 && !__builtin_add_overflow(total, t.bytes(), &total)) << t.name;
    }
  } catch (const Error&) {
  }
  return 0;
}
