#include "config/numerics.h"

#include <fmt/format.h>

#include "base/error.h"

namespace deepinfer {

Numerics Numerics::Named(const std::string& name) {
  Numerics n;
  if (name == "release") return n;
  if (name == "fp32") {
    n.bf16 = n.fp8_activations = n.fp8_expert_inputs = n.window_kv_fp8 = n.compressed_kv_fp4 =
        false;
    n.index_fp4 = n.probabilities_bf16 = n.index_scores_bf16 = false;
    return n;
  }
  if (name == "trn2") {
    n.fp8_max = 224;
    n.mixer_bf16 = n.halved_fp8_weights = true;
    n.index_scores_bf16 = n.fp8_expert_inputs = false;
    return n;
  }
  throw Error(Code::kInvalid,
              fmt::format("--numerics: expected release, fp32 or trn2, found '{}'", name));
}

}  // namespace deepinfer
