// Draft stages (spec 05): what the backbone leaves for them, and the draft of a block.
#include <algorithm>

#include "model/parts.h"

namespace deepinfer {

void AddTap(StepContext s, int layer, float* features) {
  const std::vector<int>& targets = s.c.dspark_target_layer_ids;
  const auto target = std::find(targets.begin(), targets.end(), layer);
  if (target == targets.end()) return;
  s.counted = &s.in->n_draft_rows;
  s.b.Add("draft.tap", s.k.tap,
          TapArgs{.n_rows = s.n_rows(),
                  .streams = s.streams,
                  .y = features + (target - targets.begin()) * s.c.hidden_size,
                  .y_stride = s.c.draft_features(),
                  .n_streams = static_cast<int32_t>(s.c.hc_mult),
                  .hidden = static_cast<int32_t>(s.c.hidden_size),
                  .round = s.num.bf16},
          Start::kOnOwn);
}

// One main_x per position, and from it the position's window row in every stage.
void AddDraftRows(StepContext s, float* features) {
  s.counted = &s.in->n_draft_rows;
  const DraftWeights& w = s.m.weights.draft;
  const int64_t hidden = s.c.hidden_size, dim = s.c.head_dim;
  const int64_t stages = s.c.num_nextn_predict_layers, first = s.c.num_hidden_layers;
  const auto mark = s.b.memory().Save();
  float* product = s.b.Temp<float>("draft.main_product", s.rows() * hidden);
  float* x = s.b.Temp<float>("draft.main_x", s.rows() * hidden);
  float* quantised = s.QuantisedTemp("draft.main_quantised", hidden);
  const float* xq = quantised != nullptr ? quantised : x;
  float* kv = s.b.Temp<float>("draft.kv", stages * s.rows() * dim);
  s.Quantise("draft.quant_taps", features, s.c.draft_features(), Start::kAfterAll);
  s.Linear("draft.main_proj", features, w.main_proj, product, {});
  s.RmsNorm("draft.main_norm", product, w.main_norm, x, quantised, hidden, Start::kAfterAll);
  const auto start = [](int64_t m) { return m == 0 ? Start::kAfterAll : Start::kBeside; };
  for (int64_t m = 0; m < stages; ++m) {
    const WeightView& wkv = s.m.weights.layers[static_cast<size_t>(first + m)].attn.wkv;
    s.Linear("attn.wkv", xq, wkv, kv + m * s.rows() * dim, {.start = start(m)});
  }
  for (int64_t m = 0; m < stages; ++m) {
    AddWindowRows(s, static_cast<int>(first + m), s.plain, kv + m * s.rows() * dim, start(m));
  }
  s.b.memory().Restore(mark);
}

namespace {

// The rows of the Markov embedding that stand behind `previous` [n_seqs], from the ranks that own
// them, and their place in it: the table and the ids of the transition.
struct MarkovRows {
  WeightView embed;
  const int32_t* ids;
};

MarkovRows AddMarkovRows(const StepContext& s, const int32_t* previous, uint16_t* own) {
  const WeightView& embed = s.m.weights.draft.markov_embed;
  if (own == nullptr) return {embed, previous};
  const int64_t n_seqs = s.rows() / s.c.dspark_block_size, cols = s.c.dspark_markov_rank;
  s.b.Add("draft.own_markov", OwnRows<int32_t>,
          OwnRowsArgs<int32_t>{.n_rows = &s.in->n_seqs,
                               .ids = previous,
                               .columns = 1,
                               .table = embed,
                               .first = s.m.ranks->vocab().begin,
                               .y = own,
                               .fault = nullptr,
                               .layer = -1});
  s.Merge("draft.merge_markov", &Ranks::batch, own, 2 * cols, {&s.in->n_seqs, n_seqs});
  return {Bf16Table(own, n_seqs, cols), s.in->all_rows};
}

// Token by token: the transition from the one before biases the logits of the next (spec 05 section
// 4.1). both [rows, hidden + rank] holds the input of the confidence head afterwards.
void AddTransitions(const StepContext& s, const DraftInputs& d, const float* x, float* logits,
                    float* both) {
  const DraftWeights& w = s.m.weights.draft;
  const int64_t block = s.c.dspark_block_size, n_seqs = s.rows() / block;
  const int64_t hidden = s.c.hidden_size, cols = hidden + s.c.dspark_markov_rank;
  float* bias = s.b.Temp<float>("draft.transition", n_seqs * s.c.vocab_size);
  auto* candidates = s.b.Temp<DraftCandidate>("draft.candidates", n_seqs * s.b.threads());
  uint16_t* own = AddsPartialSums(s)
                      ? s.b.Temp<uint16_t>("draft.markov", n_seqs * s.c.dspark_markov_rank)
                      : nullptr;
  for (int32_t slot = 0; slot < block; ++slot) {
    const MarkovRows markov = AddMarkovRows(s, d.previous, own);
    s.b.Add("draft.transition_input", s.k.transition_input,
            TransitionInputArgs{.n_seqs = &s.in->n_seqs,
                                .x = x,
                                .previous = markov.ids,
                                .embed = markov.embed,
                                .y = both,
                                .block = static_cast<int32_t>(block),
                                .slot = slot,
                                .hidden = static_cast<int32_t>(hidden)});
    AddWords(s, "draft.markov_head", both + slot * cols + hidden, w.markov_head, bias, n_seqs,
             {.n_rows = &s.in->n_seqs, .x_cols = block * cols});
    const DraftTokenArgs token{.n_seqs = &s.in->n_seqs,
                               .logits = logits,
                               .bias = bias,
                               .positions = s.in->positions,
                               .sampling = d.sampling,
                               .candidates = candidates,
                               .previous = d.previous,
                               .tokens = d.tokens,
                               .block = static_cast<int32_t>(block),
                               .slot = slot,
                               .vocab = static_cast<int32_t>(s.c.vocab_size)};
    s.b.Add("draft.choose", s.k.draft_choose, token);
    s.b.Add("draft.merge", s.k.draft_merge, token);
  }
}

}  // namespace

DraftOutput BuildDraft(const ForwardContext& m, const DraftInputs& d, PlanBuilder& b) {
  StepContext s{.m = m, .c = m.config, .num = m.numerics, .k = m.kernels, .in = m.inputs, .b = b};
  const int64_t hidden = s.c.hidden_size, rows = s.rows();
  AddStart(s);
  for (int64_t l = s.c.num_hidden_layers; l < s.c.num_layers_and_stages(); ++l) {
    b.SetLayer(static_cast<int>(l));
    AddCollapse(s, "hc.collapse", s.pre,
                l == s.c.num_hidden_layers ? Start::kAfterAll : Start::kOnOwn);
    AddBlock(s, static_cast<int>(l));
  }
  b.SetLayer(-1);
  float* normed = b.Temp<float>("draft.normed", rows * hidden);
  float* logits = b.Temp<float>("draft.logits", rows * s.c.vocab_size);
  const int64_t cols = hidden + s.c.dspark_markov_rank;
  float* both = b.Temp<float>("draft.confidence_input", rows * cols);
  float* confidence = b.Temp<float>("draft.confidence", rows);
  AddCollapse(s, "head.collapse", s.pre, Start::kOnOwn);
  s.RmsNorm("draft.norm", s.collapsed, m.weights.draft.norm, normed, nullptr, hidden,
            Start::kAfterAll);
  AddWords(s, "draft.head", normed, m.weights.head, logits, rows, {.n_rows = s.n_rows()});
  AddTransitions(s, d, s.collapsed, logits, both);
  s.Linear("draft.confidence", both, m.weights.draft.confidence, confidence, {.exact = true});
  if (!s.batches()) return {d.tokens, logits, confidence};
  const auto shared =
      s.ShareRows("draft.share", {s.n_rows(), s.n_world_rows(), s.in->world_rows, rows},
                  {{d.tokens, 1}, {confidence, 1}, {logits, s.c.vocab_size}});
  return {reinterpret_cast<TokenId*>(shared[0]), shared[2], shared[1]};
}

}  // namespace deepinfer
