#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace deepinfer {

namespace {

class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const ModelConfig& config, const Ranks* ranks)
      : checkpoint_(checkpoint), c_(config), ranks_(ranks) {}

  ModelWeights Bind() {
    ModelWeights w{Dense("embed.weight"), Dense("head.weight"), Vector("norm.weight"), {}, {}};
    for (int l = 0; l < c_.num_layers_and_stages(); ++l) w.layers.push_back(Layer(l));
    if (c_.num_nextn_predict_layers > 0) w.draft = Draft();
    return w;
  }

 private:
  Share RowsOf(const std::string& name) const {
    return ranks_ != nullptr ? ranks_->layout.RowsOf(name, ranks_->rank) : Share{};
  }

  // A weight that every step uses, or the rows of it that are here: its scales are checked.
  WeightView Dense(const std::string& name) {
    const Share rows = RowsOf(name);
    const WeightView w =
        rows.whole() ? checkpoint_.Get(name) : checkpoint_.Rows(name, rows.own.begin, rows.own.end);
    if (w.scale == nullptr) return w;
    const uint8_t* end = w.scale + ScaleRows(&w) * w.scale_stride_bytes;
    const uint8_t* bad = std::find(w.scale, end, uint8_t{255});
    if (bad != end) {
      throw Error(Code::kCorrupt,
                  fmt::format("{}: scale [{}, {}] is NaN (byte 255), expected a power of two", name,
                              (bad - w.scale) / w.scale_stride_bytes,
                              (bad - w.scale) % w.scale_stride_bytes));
    }
    return w;
  }

  const uint8_t* Vector(const std::string& name) { return checkpoint_.Get(name).data; }

  MixWeights Mix(const std::string& p) {
    return {Dense(p + "_fn"), Vector(p + "_base"), Vector(p + "_scale")};
  }

  AttentionWeights Attention(const std::string& p, int layer) {
    AttentionWeights w{};
    w.wq_a = Dense(p + "wq_a.weight");
    w.wq_b = Dense(p + "wq_b.weight");
    w.wkv = Dense(p + "wkv.weight");
    w.wo_a = Dense(p + "wo_a.weight");
    w.wo_b = Dense(p + "wo_b.weight");
    w.q_norm = Vector(p + "q_norm.weight");
    w.kv_norm = Vector(p + "kv_norm.weight");
    w.attn_sink = Vector(p + "attn_sink") + RowsOf(p + "attn_sink").own.begin * 4;
    if (c_.is_kv_source(layer)) {
      w.compressor.wkv = Dense(p + "compressor.wkv.weight");
      if (c_.ratio(layer) > 1) {
        w.compressor.wgate = Dense(p + "compressor.wgate.weight");
      }
      w.compressor.norm = Vector(p + "compressor.norm.weight");
      w.compressor.wk = Dense(p + "indexer.wk.weight");
      w.compressor.k_norm = Vector(p + "indexer.k_norm.weight");
    }
    if (c_.is_index_source(layer)) {
      w.indexer = {Dense(p + "indexer.wq_b.weight"), Dense(p + "indexer.weights_proj.weight")};
    }
    return w;
  }

  FfnWeights Ffn(const std::string& p, int layer) {
    FfnWeights w{Dense(p + "gate.weight"), Vector(p + "gate.bias"), {}, {}};
    const Range own = ranks_ != nullptr ? ranks_->experts(layer) : Range{0, c_.n_experts(layer)};
    w.experts.resize(static_cast<size_t>(c_.n_experts(layer)));
    for (int64_t e = own.begin; e < own.end; ++e) {
      const std::string q = fmt::format("{}experts.{}.", p, e);
      w.experts[static_cast<size_t>(e)] = {checkpoint_.Get(q + "w1.weight"),
                                           checkpoint_.Get(q + "w3.weight"),
                                           checkpoint_.Get(q + "w2.weight")};
    }
    const std::string q = p + "shared_experts.";
    w.shared = {Dense(q + "w1.weight"), Dense(q + "w3.weight"), Dense(q + "w2.weight")};
    return w;
  }

  LayerWeights Layer(int layer) {
    const std::string p = c_.TensorPrefix(layer);
    LayerWeights w{Mix(p + "hc_attn"),
                   Mix(p + "hc_ffn"),
                   Vector(p + "attn_norm.weight"),
                   Vector(p + "ffn_norm.weight"),
                   Attention(p + "attn.", layer),
                   Ffn(p + "ffn.", layer),
                   {}};
    if (c_.engram_index(layer) >= 0) {
      w.engram = {checkpoint_.Get(p + "engram.embed.weight"), Dense(p + "engram.wkv.weight"),
                  Vector(p + "engram.q_weight"), Vector(p + "engram.k_weight")};
    }
    return w;
  }

  DraftWeights Draft() {
    const std::string first = "mtp.0.";
    const std::string last = fmt::format("mtp.{}.", c_.num_nextn_predict_layers - 1);
    return {Dense(first + "main_proj.weight"),
            Vector(first + "main_norm.weight"),
            Vector(last + "norm.weight"),
            Dense(last + "markov_head.embed.weight"),
            Dense(last + "markov_head.head.weight"),
            Dense(last + "confidence_head.proj.weight")};
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& c_;
  const Ranks* ranks_;
};

}  // namespace

ModelWeights BindWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                         const Ranks* ranks) {
  return Binder(checkpoint, config, ranks).Bind();
}

}  // namespace deepinfer
