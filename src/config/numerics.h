// Which rounding points of the model are active (docs/numerics.md, spec 03).
#pragma once

#include <string>

namespace deepinfer {

struct Numerics {
  bool bf16 = true;                // every value the release keeps in bf16 is rounded to it
  bool fp8_activations = true;     // inputs of fp8 and fp4 products, blocks of 32
  bool fp8_expert_inputs = true;   // the same for routed and shared experts (needs fp8_activations)
  bool window_kv_fp8 = true;       // window rows
  bool compressed_kv_fp4 = true;   // compressed rows
  bool index_fp4 = true;           // index queries and keys
  bool probabilities_bf16 = true;  // softmax numerators before the value product
  bool index_scores_bf16 = true;   // per-head and summed index scores
  bool halved_fp8_weights = false;  // fp8 codes at half their value under twice the scale
  bool mixer_bf16 = false;          // hyper-connection weights narrowed to bf16
  float fp8_max = 448;              // largest magnitude activations are scaled to

  // release, fp32 (no rounding anywhere) or trn2. Throws Error{kInvalid} for another name.
  static Numerics Named(const std::string& name);
};

}  // namespace deepinfer
