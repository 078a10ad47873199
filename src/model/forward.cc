// The whole forward pass (spec 01 section 3).
#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/parts.h"

namespace deepinfer {

// ---- helpers of the parts ----

void StepContext::Linear(const char* name, const float* x, const WeightView& w, float* y,
                         const LinearOptions& o) const {
  LinearArgs a{};
  a.n_rows = o.n_rows != nullptr ? o.n_rows : n_rows();
  a.x = x;
  a.x_stride = o.x_cols > 0 ? o.x_cols : w.cols;
  a.w = w;
  a.y = y;
  a.y_stride = o.y_cols > 0 ? o.y_cols : w.rows;
  a.group_out = static_cast<int32_t>(o.group_out);
  a.decode = WeightDecode::kAsStored;
  if (num.halved_fp8_weights && w.dtype == DType::kFp8Tile32) a.decode = WeightDecode::kHalvedFp8;
  if (num.mixer_bf16 && w.dtype == DType::kF32) a.decode = WeightDecode::kNarrowedF32;
  a.round = num.bf16 && !o.exact;
  a.share_columns = o.share_columns;
  a.bf16_inputs = num.bf16;  // every op that feeds a product rounds to bf16 then
  a.scratch = scratch;
  a.scratch_stride = scratch_stride;
  b.Add(name, k.linear, a, o.start);
}

void StepContext::RmsNorm(const char* name, const float* x, const uint8_t* weight, float* y,
                          float* quantised, int64_t cols, Start start, const int32_t* rows) const {
  b.Add(name, k.rms_norm,
        RmsNormArgs{.n_rows = rows != nullptr ? rows : n_rows(),
                    .x = x,
                    .weight = weight,
                    .y = y,
                    .cols = static_cast<int32_t>(cols),
                    .eps = c.rms_norm_eps,
                    .round = num.bf16,
                    .quantised = quantised,
                    .fp8_max = num.fp8_max},
        start);
}

void StepContext::Quantise(const char* name, float* x, int64_t cols, Start start) const {
  if (!num.fp8_activations) return;
  b.Add(name, k.quant_rows,
        QuantRowsArgs{.n_rows = n_rows(),
                      .x = x,
                      .y = x,
                      .cols = static_cast<int32_t>(cols),
                      .format = RowFormat::kFp8Block32,
                      .fp8_max = num.fp8_max},
        start);
}

void StepContext::Rope(const char* name, float* x, int64_t heads, int64_t head_dim,
                       const RopeTables& t, bool inverse, Start start) const {
  b.Add(name, k.rope,
        RopeArgs{.n_rows = n_rows(),
                 .x = x,
                 .heads = static_cast<int32_t>(heads),
                 .head_dim = static_cast<int32_t>(head_dim),
                 .rope = Rotation(t),
                 .inverse = inverse,
                 .round = num.bf16},
        start);
}

void StepContext::Merge(const char* name, Comm* Ranks::*comm, void* x, int64_t row_bytes,
                        ExchangeRows rows, int64_t front) const {
  const Layout& layout = m.ranks->layout;
  b.NoteExchange({name, "merge", comm == &Ranks::world ? layout.size() : layout.batch_size(),
                  front * 4 + rows.most * row_bytes});
  b.Add(name, MergeWords,
        MergeWordsArgs{.comm = m.ranks->*comm,
                       .n_rows = rows.n_rows,
                       .x = x,
                       .words = row_bytes / 4,
                       .front = front});
}

std::vector<float*> StepContext::ShareRows(const char* name, const SharedRows& rows,
                                           const std::vector<Words>& parts) const {
  int64_t words = 0;
  for (const Words& part : parts) words += rows.most * part.cols;
  float* all = b.Temp<float>(name, words);
  std::vector<float*> shared;
  Start start = Start::kAfterAll;
  float* next = all;
  for (const Words& part : parts) {
    b.Add("ranks.place", PlaceRows,
          PlaceRowsArgs{.n_rows = rows.n,
                        .n_all = rows.n_all,
                        .to = rows.to,
                        .x = part.x,
                        .y = next,
                        .cols = part.cols},
          start);
    shared.push_back(next);
    next += rows.most * part.cols;
    start = Start::kBeside;
  }
  Merge(name, &Ranks::world, all, 4 * parts.back().cols, {rows.n_all, rows.most},
        shared.back() - all);
  return shared;
}

void StepContext::Sum(const char* name, Comm* Ranks::*comm, int size, float* x,
                      int64_t cols) const {
  b.NoteExchange({name, "sum", size, rows() * cols * 4});
  b.Add(name, SumRows,
        SumRowsArgs{.comm = m.ranks->*comm, .n_rows = n_rows(), .x = x, .cols = cols});
  b.Add("sum.round", RoundRows,
        RoundRowsArgs{.n_rows = n_rows(), .x = x, .cols = cols, .round = num.bf16});
}

void StepContext::Gather(const char* name, Comm* Ranks::*comm, const Cuts& cuts, float* x,
                         int64_t cols, ExchangeRows rows) const {
  int64_t widest = 0;
  for (size_t p = 1; p < cuts.size(); ++p) widest = std::max(widest, cuts[p] - cuts[p - 1]);
  b.NoteExchange({name, "gather", static_cast<int>(std::ssize(cuts)) - 1, rows.most * widest * 4});
  b.Add(name, GatherColumns,
        GatherColumnsArgs{
            .comm = m.ranks->*comm, .n_rows = rows.n_rows, .x = x, .cols = cols, .cuts = &cuts});
}

PagedRows StepContext::Paged(const uint8_t* cache, RowFormat format, int ratio) const {
  return {.rows = cache,
          .block_table = in->block_table,
          .table_stride = in->table_stride,
          .rows_per_page = static_cast<int32_t>(kBlockTokens / ratio),
          .format = format};
}

namespace {

// ---- the step ----

RopeTables AddRopeTable(const StepContext& s, const char* name, const float* freq, int offset,
                        Start start) {
  const int64_t half = s.c.qk_rope_head_dim / 2;
  float* cos = s.b.Temp<float>("rope.cos", s.rows() * half);
  float* sin = s.b.Temp<float>("rope.sin", s.rows() * half);
  s.b.Add(name, s.k.rope_table,
          RopeTableArgs{.n_rows = s.n_rows(),
                        .positions = s.in->positions,
                        .offset = offset,
                        .freq = freq,
                        .half = static_cast<int32_t>(half),
                        .cos = cos,
                        .sin = sin},
          start);
  return {cos, sin};
}

// A compressed row stands at the position of its group's first token.
void AddRopeTables(StepContext& s) {
  s.plain = AddRopeTable(s, "rope.plain", s.m.rope_plain, 0, Start::kAfterAll);
  s.yarn = AddRopeTable(s, "rope.yarn", s.m.rope_yarn, 0, Start::kBeside);
  s.group[1] = s.yarn;
  s.group[2] = AddRopeTable(s, "rope.group2", s.m.rope_yarn, -1, Start::kBeside);
}

// A thread's scratch fills pages of its own, huge ones where it is large: the thread touches them
// first, so they lie in its processor's memory.
int64_t ScratchAlign(int64_t bytes) {
  return bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
}

// Most floats a thread needs at once; see the scratch contracts in ops/.
int64_t ScratchFloats(const ModelConfig& c) {
  const int64_t mixer = c.hc_mult * c.hidden_size;  // fp32 weights: no bf16 product
  const int64_t widest =
      std::max({c.num_attention_heads * c.head_dim / c.o_groups, c.q_lora_rank,
                c.o_groups * c.o_lora_rank, c.moe_intermediate_size, c.draft_features(),
                c.hidden_size + c.dspark_markov_rank, c.engram_columns() * c.engram_head_dim});
  const int64_t select = IndexSelectScratchBytes(c.index_n_heads, c.index_head_dim, c.index_topk,
                                                 c.candidate_topk_blocks) /
                         4;
  const int64_t floats = std::max(
      {mixer, LinearScratchFloats(widest), ExpertScratchFloats(c.hidden_size),
       ExpertScratchFloats(c.moe_intermediate_size), select, AttentionScratchFloats(c.head_dim)});
  const int64_t page = ScratchAlign(floats * 4) / 4;
  return (floats + page - 1) / page * page;
}

void BookStepBuffers(StepContext& s) {
  const int64_t rows = s.rows(), n = s.c.hc_mult, pairs = rows * s.c.max_experts_per_tok();
  s.streams = s.b.Temp<float>("streams", rows * n * s.c.hidden_size);
  s.pre = s.b.Temp<float>("pre", rows * n);
  s.collapsed = s.b.Temp<float>("hc.collapsed", rows * s.c.hidden_size);
  s.raw_mix = s.b.Temp<float>("hc.raw", rows * (2 + n) * n);
  s.selected = s.b.Temp<int32_t>("index.selected", rows * s.c.index_topk);
  s.n_selected = s.b.Temp<int32_t>("index.n_selected", rows);
  const int64_t blocks = s.c.candidate_source_layer_id >= 0 ? s.c.candidate_topk_blocks : 0;
  s.candidates = s.b.Temp<int32_t>("index.candidates", rows * blocks);
  s.n_candidates = s.b.Temp<int32_t>("index.n_candidates", rows);
  s.routed.n_active = s.b.Temp<int32_t>("moe.n_active", 1);
  s.routed.active = s.b.Temp<int32_t>("moe.active", s.c.max_experts());
  s.routed.begin = s.b.Temp<int32_t>("moe.begin", s.c.max_experts() + 1);
  s.routed.rows = s.b.Temp<int32_t>("moe.pair_rows", pairs);
  s.routed.weights = s.b.Temp<float>("moe.pair_weights", pairs);
  if (s.m.ranks != nullptr) {
    s.slots = s.routed;
    s.slots.rows = s.b.Temp<int32_t>("moe.slots_of_pairs", pairs);
    s.n_slots = s.b.Temp<int32_t>("moe.n_slots", 1);
  }
  StepInputs* in =
      const_cast<StepInputs*>(s.in);  // ExpertPairs has no const form; kernels only read these
  s.everyone = {&in->one, &in->zero, in->all_rows_begin, in->all_rows, nullptr};
  s.scratch_stride = ScratchFloats(s.c);
  s.scratch = s.b.Temp<float>("thread_scratch", s.b.threads() * s.scratch_stride,
                              ScratchAlign(s.scratch_stride * 4));
}

// Final collapse with the last layer's pre-mix, norm, and logits of the sampled rows only.
ForwardOutput AddHead(const StepContext& s, int64_t max_samples) {
  const int64_t hidden = s.c.hidden_size;
  float* x = s.b.Temp<float>("head.x", s.rows() * hidden);
  float* sampled = s.b.Temp<float>("head.sampled", max_samples * hidden);
  float* logits = s.b.Temp<float>("head.logits", max_samples * s.c.vocab_size);
  auto* top = s.b.Temp<TopLogit>("head.top", max_samples * s.b.threads());
  AddCollapse(s, "head.collapse", s.pre, s.m.draft_rows ? Start::kAfterAll : Start::kOnOwn);
  s.RmsNorm("head.norm", s.collapsed, s.m.weights.norm, x, nullptr, hidden, Start::kAfterAll);
  s.b.AddProbe("final_hidden", x, s.n_rows(), hidden);
  s.b.Add("head.gather", s.k.gather_rows,
          GatherRowsArgs{.n_rows = &s.in->n_samples,
                         .rows = s.in->sample_rows,
                         .x = x,
                         .y = sampled,
                         .cols = static_cast<int32_t>(hidden)});
  Start top_start = AddWords(s, "head.logits", sampled, s.m.weights.head, logits, max_samples,
                             {.n_rows = &s.in->n_samples, .share_columns = true});
  if (s.batches()) {
    const StepContext::SharedRows rows{&s.in->n_samples, &s.in->n_world_samples,
                                       s.in->world_samples, max_samples};
    logits = s.ShareRows("head.share", rows, {{logits, s.c.vocab_size}})[0];
    top_start = Start::kAfterAll;
  }
  s.b.AddProbe("logits", logits, &s.in->n_world_samples, s.c.vocab_size);
  s.b.Add("head.top", s.k.top_logits,
          TopLogitsArgs{.n_rows = &s.in->n_world_samples,
                        .logits = logits,
                        .best = top,
                        .vocab = static_cast<int32_t>(s.c.vocab_size)},
          top_start);
  return {logits, top};
}

// Do the ranks of a batch share embedding and head?
bool CutsWords(const StepContext& s) {
  return s.m.ranks != nullptr && s.m.ranks->layout.batch_size() > 1;
}

// Rows of the embedding come from the ranks that own their words.
void AddOwnEmbedding(const StepContext& s) {
  const int64_t hidden = s.c.hidden_size;
  uint16_t* own = s.b.Temp<uint16_t>("embed.rows", s.rows() * hidden);
  s.b.Add("embed.own", OwnRows<int32_t>,
          OwnRowsArgs<int32_t>{.n_rows = s.n_rows(),
                               .ids = s.in->ids,
                               .columns = 1,
                               .table = s.m.weights.embed,
                               .first = s.m.ranks->vocab().begin,
                               .y = own,
                               .fault = nullptr,
                               .layer = -1},
          Start::kBeside);
  s.Merge("embed.merge", &Ranks::batch, own, 2 * hidden, s.all_rows());
  s.b.Add("embed", s.k.embed,
          EmbedArgs{.n_rows = s.n_rows(),
                    .ids = s.in->all_rows,
                    .table = Bf16Table(own, s.rows(), hidden),
                    .streams = s.streams,
                    .pre = s.pre,
                    .n_streams = static_cast<int32_t>(s.c.hc_mult)});
}

}  // namespace

Start AddWords(const StepContext& s, const char* name, const float* x, const WeightView& w,
               float* y, int64_t most, const StepContext::LinearOptions& options) {
  StepContext::LinearOptions o = options;
  o.exact = true;
  if (!CutsWords(s)) {
    s.Linear(name, x, w, y, o);
    return Start::kOnOwn;
  }
  o.y_cols = s.c.vocab_size;
  s.Linear(name, x, w, y + s.m.ranks->vocab().begin, o);
  s.Gather("words.gather", &Ranks::batch, s.m.ranks->layout.vocab(), y, s.c.vocab_size,
           {o.n_rows, most});
  return Start::kAfterAll;
}

void AddStart(StepContext& s) {
  BookStepBuffers(s);
  AddRopeTables(s);
  if (CutsWords(s)) return AddOwnEmbedding(s);
  s.b.Add("embed", s.k.embed,
          EmbedArgs{.n_rows = s.n_rows(),
                    .ids = s.in->ids,
                    .table = s.m.weights.embed,
                    .streams = s.streams,
                    .pre = s.pre,
                    .n_streams = static_cast<int32_t>(s.c.hc_mult)},
          Start::kBeside);
}

ForwardOutput BuildForward(const ForwardContext& m, int64_t max_samples, PlanBuilder& b) {
  StepContext s{.m = m, .c = m.config, .num = m.numerics, .k = m.kernels, .in = m.inputs, .b = b};
  AddStart(s);
  float* features =
      m.draft_rows ? b.Temp<float>("draft.features", s.rows() * s.c.draft_features()) : nullptr;
  for (int layer = 0; layer < s.c.num_hidden_layers; ++layer) {
    b.SetLayer(layer);
    b.AddProbe(fmt::format("streams.{}", layer), s.streams, s.n_rows(),
               s.c.hc_mult * s.c.hidden_size);
    b.AddProbe(fmt::format("pre.{}", layer), s.pre, s.n_rows(), s.c.hc_mult);
    const bool engram = s.c.engram_index(layer) >= 0;
    if (engram) AddEngram(s, layer);
    AddCollapse(s, "hc.collapse", s.pre, engram || layer == 0 ? Start::kAfterAll : Start::kOnOwn);
    if (m.draft_rows) AddTap(s, layer, features);
    AddBlock(s, layer);
  }
  b.SetLayer(-1);
  if (m.draft_rows) {
    b.AddProbe("draft_features", features, s.n_rows(), s.c.draft_features());
    AddDraftRows(s, features);
  }
  return AddHead(s, max_samples);
}

KvShape MakeKvShape(const ModelConfig& c, const Numerics& n, int64_t max_step_rows) {
  KvShape shape{};
  shape.n_layers = c.num_layers_and_stages();
  shape.draft_rows = c.dspark_block_size;
  shape.window = c.sliding_window;
  // The state at the last whole page can always be kept for others (PrefixCache).
  shape.max_step_rows = std::max(max_step_rows, kBlockTokens);
  shape.window_row_bytes = RowBytes(WindowFormat(n), c.head_dim);
  shape.compressed_row_bytes = RowBytes(CompressedFormat(n), c.head_dim);
  shape.index_row_bytes = RowBytes(IndexFormat(n), c.index_head_dim);
  shape.raw_cols = c.head_dim;
  for (int layer : c.kv_source_layer_ids) {
    shape.owners.push_back({layer, c.compress_ratios[static_cast<size_t>(layer)]});
  }
  return shape;
}

std::vector<float> RopeFrequencies(const ModelConfig& c, bool compressed) {
  const int64_t dim = c.qk_rope_head_dim;
  const double theta = compressed ? c.compress_rope_theta : c.rope_theta;
  std::vector<float> freq(static_cast<size_t>(dim / 2));
  for (int64_t i = 0; i < dim / 2; ++i) {
    // Exponent in fp32, power in double rounded to fp32, reciprocal in fp32: the last bits show at
    // long context.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    freq[static_cast<size_t>(i)] =
        1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  if (!compressed || !c.rope_scaling) return freq;

  const RopeScaling& yarn = *c.rope_scaling;
  const auto dim_with_turns = [&](double turns) {
    const double original = static_cast<double>(yarn.original_max_position_embeddings);
    return static_cast<double>(dim) * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  const double low = std::max(std::floor(dim_with_turns(yarn.beta_fast)), 0.0);
  const double high =
      std::min(std::ceil(dim_with_turns(yarn.beta_slow)), static_cast<double>(dim - 1));
  const float width = static_cast<float>(std::max(high - low, 1e-3)),
              factor = static_cast<float>(yarn.factor);
  for (int64_t i = 0; i < dim / 2; ++i) {
    float& f = freq[static_cast<size_t>(i)];
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / width, 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    f = f / factor * (1.0f - keep) + f * keep;
  }
  return freq;
}

}  // namespace deepinfer
