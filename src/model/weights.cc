#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace deepinfer {

namespace {

class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const ModelConfig& config, const Ranks* ranks)
      : checkpoint_(checkpoint), c_(config), ranks_(ranks) {}

  ModelWeights Bind() {
    ModelWeights w{Dense("embed.weight"), Dense("head.weight"), Vector("norm.weight"), {}, {}, {}};
    for (int l = 0; l < c_.num_layers_and_stages(); ++l) w.layers.push_back(Layer(l));
    if (c_.num_nextn_predict_layers > 0) w.draft = Draft();
    w.copies = std::move(copies_);
    return w;
  }

 private:
  Slice SliceOf(const std::string& name) const {
    return ranks_ != nullptr ? ranks_->layout.SliceOf(name, ranks_->rank) : Slice{};
  }

  WeightView Own(const std::string& name) {
    const Slice s = SliceOf(name);
    const WeightView w = s.rows.whole() ? checkpoint_.Get(name)
                                        : checkpoint_.Rows(name, s.rows.own.begin, s.rows.own.end);
    return s.cols.whole() ? w : Columns(w, s.cols.own);
  }

  // Columns of w, in units of 32, as bytes of their own: every page of w has some of them.
  WeightView Columns(const WeightView& w, Range own) {
    const int64_t element = w.row_stride_bytes / w.cols;
    const bool scaled = w.scale != nullptr;
    const Range bytes{own.begin * element, own.end * element},
        scales{scaled ? own.begin / 32 : 0, scaled ? own.end / 32 : 0};
    WeightView part = w;
    part.cols = own.size();
    part.row_stride_bytes = bytes.size(), part.scale_stride_bytes = scales.size();
    const int64_t scale_rows = scaled ? ScaleRows(&w) : 0;
    uint8_t* to = Copies("columns of weights", w.rows * bytes.size() + scale_rows * scales.size());
    const auto copy = [&](const uint8_t* from, int64_t stride, int64_t rows, Range columns) {
      const uint8_t* begin = to;
      for (int64_t r = 0; r < rows; ++r, to += columns.size())
        std::copy_n(from + r * stride + columns.begin, columns.size(), to);
      return begin;
    };
    part.data = copy(w.data, w.row_stride_bytes, w.rows, bytes);
    if (scaled) part.scale = copy(w.scale, w.scale_stride_bytes, scale_rows, scales);
    return part;
  }

  uint8_t* Copies(const char* what, int64_t bytes) {
    return reinterpret_cast<uint8_t*>(copies_.emplace_back(what, bytes).base());
  }

  // A table of Engram rows, or those that are here.
  WeightView Table(const std::string& name) {
    const WeightView stored = Own(name);
    if (ranks_ == nullptr || !ranks_->layout.decodes_engram()) return stored;
    WeightView w = stored;
    w.dtype = DType::kBf16, w.scale = nullptr;
    w.row_stride_bytes = 2 * w.cols, w.scale_stride_bytes = 0;
    uint8_t* to = Copies("Engram rows in bf16", w.rows * w.row_stride_bytes);
    w.data = to;
    for (int64_t r = 0; r < w.rows; ++r, to += w.row_stride_bytes) {
      if (DecodeBf16Row(stored, r, reinterpret_cast<uint16_t*>(to))) continue;
      throw Error(Code::kCorrupt, fmt::format("{}: row {} holds a NaN scale (byte 255), expected "
                                              "powers of two",
                                              name, SliceOf(name).rows.own.begin + r));
    }
    return w;
  }

  // A weight that every step uses, or the part of it that is here: its scales are checked.
  WeightView Dense(const std::string& name) {
    const WeightView w = Own(name);
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
    w.attn_sink = Vector(p + "attn_sink") + SliceOf(p + "attn_sink").rows.own.begin * 4;
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
      w.engram = {Table(p + "engram.embed.weight"), Dense(p + "engram.wkv.weight"),
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
  std::vector<Arena> copies_;
};

}  // namespace

ModelWeights BindWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                         const Ranks* ranks) {
  return Binder(checkpoint, config, ranks).Bind();
}

}  // namespace deepinfer
