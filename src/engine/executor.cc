#include "engine/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/cpu/select.h"
#include "base/check.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/team.h"
#include "base/topology.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_dir.h"
#include "config/numerics.h"
#include "engine/rank_world.h"
#include "model/engram_hash.h"
#include "model/forward.h"
#include "model/planted_caches.h"
#include "model/step_bytes.h"
#include "tokenizer/token_classes.h"

namespace deepinfer {

namespace {

// Of prompts whose log-probabilities are wanted so many rows fit a step, however few are verified.
constexpr int64_t kMinLogits = 32;

// Ranks wait so much longer for those that load than for those that compute.
constexpr int64_t kLoadTimeouts = 20;

// Fills in what the options leave to the model and the machine, and checks them against it.
EngineOptions Resolve(EngineOptions o, const ModelConfig& c) {
  o.Validate();
  if (o.max_model_len == 0) o.max_model_len = c.max_position_embeddings;
  if (o.max_model_len > c.max_position_embeddings) {
    throw Error(Code::kInvalid,
                fmt::format("--max-model-len: expected at most {} (max_position_embeddings of the "
                            "model), found {}",
                            c.max_position_embeddings, o.max_model_len));
  }
  o.max_num_batched_tokens = std::min(o.max_num_batched_tokens, o.max_model_len * o.max_num_seqs);
  if (o.max_num_batched_tokens < o.max_num_seqs) o.max_num_batched_tokens = o.max_num_seqs;
  if (c.num_nextn_predict_layers == 0) o.speculative = "off";
  if (o.num_speculative_tokens > c.dspark_block_size) {
    throw Error(
        Code::kInvalid,
        fmt::format("--num-speculative-tokens: expected at most {} (dspark_block_size of the "
                    "model), found {}",
                    c.dspark_block_size, o.num_speculative_tokens));
  }
  if (o.num_speculative_tokens < 0) o.num_speculative_tokens = c.dspark_block_size;
  if (o.num_speculative_tokens == 0) o.speculative = "off";
  if (o.threads == 0) o.threads = DefaultThreads();
  const KvShape shape = MakeKvShape(c, Numerics::Named(o.numerics), o.max_num_batched_tokens);
  o.num_kv_blocks =
      NumKvBlocks(o, o.max_model_len, kBlockTokens, std::max<int64_t>(shape.BlockBytes(), 1));
  return o;
}

// What must be equal on all ranks for their steps to be.
std::string SameOnAllRanks(const EngineOptions& o) {
  return fmt::format(
      "{} rows, {} sequences of {} tokens in {} blocks, numerics {}, level {}, {} "
      "drafts, {} routing {}, reduce {}, engram {}",
      o.max_num_batched_tokens, o.max_num_seqs, o.max_model_len, o.num_kv_blocks, o.numerics, o.isa,
      o.speculative == "off" ? 0 : o.num_speculative_tokens, o.routing, o.routing_overlap, o.reduce,
      o.engram);
}

// The numbers that options name, against what there is.
void CheckSizes(const EngineOptions& o, const Layout& layout) {
  const auto check = [&](const char* option, int64_t named, int size) {
    if (named == 0 || named == size) return;
    throw Error(Code::kInvalid,
                fmt::format("--{}: expected {} (--layout {} on {} ranks, see mpirun -n), found {}",
                            option, size, o.layout, layout.size(), named));
  };
  check("ranks", o.ranks, layout.size());
  check("tensor-parallel-size", o.tensor_parallel_size, layout.attention_size());
  check("ep", o.expert_parallel_size, layout.size());
}

std::unique_ptr<RankWorld> JoinWorld(const ExecutorOptions& o, const ModelConfig& config) {
  const LayoutOptions layout{.layout = o.engine.layout,
                             .ranks = o.world != nullptr ? o.world->size() : 1,
                             .batch_ranks = o.engine.batch_ranks,
                             .reduce = o.engine.reduce,
                             .engram = o.engine.engram};
  CheckSizes(o.engine, Layout(config, layout));
  if (layout.ranks == 1) {
    if (o.engine.engram == "host") return nullptr;
    throw Error(Code::kInvalid,
                fmt::format("--engram: expected host on one rank, found {}", o.engine.engram));
  }
  o.world->SetDeadline(kLoadTimeouts * std::chrono::seconds(o.engine.rank_timeout_s));
  return std::make_unique<RankWorld>(config, layout, o.world);
}

KvShape ShapeOf(const ModelConfig& config, const Numerics& numerics, int64_t max_step_rows,
                const RankWorld* world) {
  KvShape shape = MakeKvShape(config, numerics, max_step_rows);
  if (world != nullptr) shape.n_batches = world->ranks().layout.n_batches();
  return shape;
}

// Padded row counts of the plans: powers of two for decoding, and the prompt chunk.
std::vector<int64_t> BucketRows(const EngineOptions& o) {
  std::vector<int64_t> rows;
  for (int64_t r = 1; r < o.max_num_batched_tokens; r *= 2) rows.push_back(r);
  rows.push_back(o.max_num_batched_tokens);
  return rows;
}

EngramHashParams HashParams(const ModelConfig& c) {
  return {.layer_ids = c.engram_layer_ids,
          .num_embeddings = c.engram_num_embeddings,
          .classes = c.engram_compressed_vocab_size,
          .vocab_size = c.engram_vocab_size,
          .max_ngram = static_cast<int>(c.engram_max_ngram_size),
          .heads = static_cast<int>(c.engram_n_heads),
          .pad_token = c.engram_pad_token_id,
          .dead_token = c.image_token_id};
}

// Where a model comes from: a directory, or nowhere (synthetic), without tokenizer.
std::string ModelDir(const EngineOptions& o) {
  return o.synthetic ? "synthetic" : ResolveModelDir(o.model, HubCacheDir());
}

ModelConfig LoadConfig(const EngineOptions& o, const std::string& dir) {
  return o.synthetic ? SyntheticConfig(*o.synthetic) : ModelConfig::Load(dir + "/config.json");
}

std::optional<Tokenizer> LoadTokenizer(const ExecutorOptions& o, const std::string& dir) {
  if (o.engine.synthetic) return std::nullopt;
  if (o.progress) o.progress("tokenizer");
  return Tokenizer::Load(dir + "/tokenizer.json");
}

Checkpoint OpenCheckpoint(const ExecutorOptions& o, const std::string& dir,
                          const ModelConfig& config, int64_t threads, const RankWorld* world) {
  if (o.engine.synthetic) {
    if (o.progress) o.progress("random weights");
    const auto own = [&](const TensorSpec& t) {
      const Ranks& ranks = world->ranks();
      return BytesOf(ranks.layout.SliceOf(t.name, ranks.rank).rows, t.bytes());
    };
    return Checkpoint::Random(config, o.engine.synthetic->seed, static_cast<int>(threads),
                              world ? Checkpoint::OwnBytes(own) : nullptr);
  }
  if (o.progress) o.progress("tensor headers");
  return Checkpoint::Open(dir, config);
}

std::unique_ptr<EngramHash> MakeHash(const ModelConfig& c,
                                     const std::optional<Tokenizer>& tokenizer,
                                     const std::string& dir) {
  if (c.engram_layer_ids.empty()) return nullptr;
  if (!tokenizer) {
    std::vector<int32_t> any(static_cast<size_t>(c.vocab_size));
    for (size_t i = 0; i < any.size(); ++i)
      any[i] = static_cast<int32_t>(static_cast<int64_t>(i) % c.engram_compressed_vocab_size);
    return std::make_unique<EngramHash>(HashParams(c), std::move(any));
  }
  std::vector<int32_t> classes = TokenClasses(*tokenizer);
  if (NumTokenClasses(classes) != c.engram_compressed_vocab_size ||
      static_cast<int64_t>(classes.size()) != c.vocab_size) {
    throw Error(
        Code::kInvalid,
        fmt::format(
            "{}/tokenizer.json: expected {} tokens in {} classes (config.json), found {} in {}",
            dir, c.vocab_size, c.engram_compressed_vocab_size, classes.size(),
            NumTokenClasses(classes)));
  }
  return std::make_unique<EngramHash>(HashParams(c), std::move(classes));
}

std::string FaultSentence(const Fault& f, const ModelConfig& c) {
  if (f.kind == Fault::kEngramScaleNan) {
    return fmt::format(
        "layers.{}.engram.embed.scale: row {} holds a NaN scale (byte 255), expected powers of two",
        f.layer, f.index);
  }
  static constexpr const char* kPart[] = {"w1", "w3", "w2"};
  return fmt::format(
      "{}ffn.experts.{}.{}.scale: holds a NaN scale (byte 255), expected powers of two",
      c.TensorPrefix(f.layer), f.index / 3, kPart[f.index % 3]);
}

}  // namespace

struct Executor::Impl {
  explicit Impl(const ExecutorOptions& o);

  void BuildPlans(bool all_logits);
  // fill(batch, put) fills the inputs of a batch and puts them into the record that the other ranks
  // get; those of rank 0's own batch come last and stay.
  template <class Fill>
  void Tell(RankRecords::Kind kind, const Fill& fill);
  void RunStep(const ProbeFn* observer);
  void RunProbedStep(const ProbeFn* observer);
  void ShareFault();
  void SendRings(SeqSlot slot);
  void TakeRings();
  void Plant(uint64_t seed);
  void Follow();
  EngramDims engram_dims() const;
  void ThrowFault() const;
  void FillInputs(std::span<const SeqRows> seqs, int batch, bool draft_rows);
  void FillEngram(std::span<const SeqRows> seqs);
  int n_batches() const { return kv.shape().n_batches; }

  std::string dir;
  ModelConfig config;
  EngineOptions options;
  std::unique_ptr<RankWorld> world;  // null: alone
  Numerics numerics;
  std::optional<Tokenizer> tokenizer;
  Checkpoint checkpoint;
  ModelWeights weights;
  std::unique_ptr<EngramHash> hash;
  std::vector<float> rope_plain, rope_yarn;
  const KernelTable* kernels;
  KvPool kv;
  deepinfer::StepBytes step_bytes;
  StepBlock inputs;
  Fault fault{};
  StepProfile *profile = nullptr, *draft_profile = nullptr;
  std::vector<uint8_t> checked_experts;
  std::vector<int64_t> engram_rows;  // of one sequence, as EngramHash writes them
  std::vector<SeqRows> batch_seqs;   // of the batch whose inputs are being filled
  Arena arena;
  ArenaPlan memory;  // of the largest bucket
  struct Bucket {
    RegionPlan plan;
    ForwardOutput output;
    int64_t max_samples;
  };
  std::vector<Bucket> buckets;
  int64_t max_logits;
  ForwardOutput last{};  // of the last step
  std::optional<Drafter> drafter;
  std::optional<uint32_t> shuffle_seed;
  std::vector<std::byte> rings;  // of a slot, on their way to other ranks
  Team team;
};

Executor::Impl::Impl(const ExecutorOptions& o)
    : dir(ModelDir(o.engine)),
      config(LoadConfig(o.engine, dir)),
      options(Resolve(o.engine, config)),
      world(JoinWorld(o, config)),
      numerics(Numerics::Named(options.numerics)),
      tokenizer(LoadTokenizer(o, dir)),
      checkpoint(OpenCheckpoint(o, dir, config, options.threads, world.get())),
      weights(BindWeights(checkpoint, config, world ? &world->ranks() : nullptr)),
      hash(MakeHash(config, tokenizer, dir)),
      rope_plain(RopeFrequencies(config, false)),
      rope_yarn(RopeFrequencies(config, true)),
      kernels(&SelectKernels(DetectCpuFeatures(), options.isa)),
      kv(ShapeOf(config, numerics, options.max_num_batched_tokens, world.get()),
         static_cast<int>(options.max_num_seqs), options.num_kv_blocks, options.max_model_len),
      step_bytes(config, kv.shape()),
      inputs(options.max_num_batched_tokens, options.max_num_seqs, kv.max_blocks_per_seq(),
             static_cast<int64_t>(config.engram_layer_ids.size()) * config.engram_columns()),
      checked_experts(static_cast<size_t>(config.num_layers_and_stages() * config.max_experts())),
      engram_rows(static_cast<size_t>(options.max_num_batched_tokens) *
                  config.engram_layer_ids.size() * static_cast<size_t>(config.engram_columns())),
      team(static_cast<int>(options.threads)) {
  batch_seqs.reserve(static_cast<size_t>(options.max_num_seqs));
  options.isa = kernels->isa;
  if (n_batches() > 1) options.prefix_cache_mib = 0;  // rank 0 has the caches of its own batch only
  if (world) world->ExpectSame(SameOnAllRanks(options));
  if (o.progress) o.progress("plans");
  BuildPlans(o.all_logits);
  if (world) world->BeginSteps(std::chrono::seconds(options.rank_timeout_s));
}

void Executor::Impl::BuildPlans(bool all_logits) {
  const bool drafts = options.speculative != "off";
  const ForwardContext context{config,
                               numerics,
                               *kernels,
                               weights,
                               kv,
                               inputs.inputs(),
                               &fault,
                               checked_experts.data(),
                               rope_plain.data(),
                               rope_yarn.data(),
                               drafts,
                               options.routing == "uniform",
                               static_cast<float>(options.routing_overlap),
                               world ? &world->ranks() : nullptr};
  if (drafts) drafter.emplace(context, options.max_num_seqs, static_cast<int>(options.threads));
  // A verification wants the logits of the newest token and of every draft.
  const int64_t verified =
      options.max_num_seqs * (1 + (drafts ? options.num_speculative_tokens : 0));
  max_logits = all_logits ? options.max_num_batched_tokens : std::max(verified, kMinLogits);
  const auto build = [&](int64_t rows, std::byte* base) {
    PlanBuilder builder(rows, static_cast<int>(options.threads), base);
    const int64_t max_samples = std::min(rows, max_logits);
    const ForwardOutput out = BuildForward(context, max_samples, builder);
    memory = builder.memory();
    return Bucket{builder.Take(), out, max_samples};
  };
  build(options.max_num_batched_tokens, nullptr);
  arena = Arena("memory of a step (see --max-num-batched-tokens)",
                std::max(memory.peak_bytes(), drafter ? drafter->plan_bytes() : 0));
  for (int64_t rows : BucketRows(options)) buckets.push_back(build(rows, arena.base()));
  if (drafter) drafter->Build(arena.base());
}

void Executor::Impl::ThrowFault() const {
  if (fault.kind != Fault::kNone) throw Error(Code::kCorrupt, FaultSentence(fault, config));
}

// The inputs of the sequences of one batch in a step of all of them.
void Executor::Impl::FillInputs(std::span<const SeqRows> seqs, int batch, bool draft_rows) {
  batch_seqs.clear();
  for (const SeqRows& seq : seqs)
    if (kv.batch(seq.slot) == batch) batch_seqs.push_back(seq);
  StepInputs* in = inputs.inputs();
  kv.FillInputs(batch_seqs, in);
  BatchNumbers numbers(in);
  for (const SeqRows& seq : seqs) {
    const int64_t rows = std::ssize(seq.tokens) - seq.first;
    numbers.Add(rows, std::min(seq.n_logits, rows), kv.batch(seq.slot) == batch);
  }
  in->n_draft_rows = draft_rows ? in->n_rows : 0;
  FillEngram(batch_seqs);
}

// The rows depend on ids only; the executor asks for them before the step starts.
void Executor::Impl::FillEngram(std::span<const SeqRows> seqs) {
  StepInputs* in = inputs.inputs();
  if (hash == nullptr) {
    std::fill_n(in->dead, in->n_rows, uint8_t{0});
    return;
  }
  const int64_t columns = config.engram_columns(), layers = hash->layers();
  int64_t row = 0;
  for (const SeqRows& seq : seqs) {
    const int64_t start = std::max<int64_t>(0, seq.first - hash->lookback());
    const int64_t n = static_cast<int64_t>(seq.tokens.size()) - seq.first;
    hash->Rows(seq.tokens.subspan(static_cast<size_t>(start)), seq.first - start,
               std::span(engram_rows).first(static_cast<size_t>(n * layers * columns)),
               std::span(in->dead + row, static_cast<size_t>(n)));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t l = 0; l < layers; ++l) {
        std::copy_n(engram_rows.data() + (r * layers + l) * columns, columns,
                    in->engram_rows + (l * in->max_rows + row + r) * columns);
      }
    }
    row += n;
  }
}

EngramDims Executor::Impl::engram_dims() const {
  return {std::ssize(config.engram_layer_ids), config.engram_columns()};
}

template <class Fill>
void Executor::Impl::Tell(RankRecords::Kind kind, const Fill& fill) {
  const auto put = [this](void* p, int64_t bytes) { world->records().Put(p, bytes); };
  if (world) world->records().Begin(kind);
  for (int batch = n_batches() - 1; batch >= 0; --batch) fill(batch, put);
  if (world) world->records().Send();
}

// Runs the step that the inputs describe.
void Executor::Impl::RunStep(const ProbeFn* observer) {
  const StepInputs* in = inputs.inputs();
  const auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) {
    return b.plan.rows >= in->n_world_rows;
  });
  DI_CHECK(in->n_world_samples <= bucket->max_samples)
      << in->n_world_samples << " samples, room for " << bucket->max_samples;
  fault.kind = Fault::kNone;
  if (profile != nullptr)
    profile->Begin(team.size(), bucket->plan.phases.size(), in->n_rows, in->n_seqs);
  if (shuffle_seed)
    RunPlanShuffled(team, bucket->plan, ++*shuffle_seed);
  else
    RunPlan(team, bucket->plan, observer, profile);
  last = bucket->output;
  ShareFault();
}

// The observer of the driver, or null on the others. All get what it leaves: it may have written.
void Executor::Impl::RunProbedStep(const ProbeFn* observer) {
  const ProbeFn shared = [&](const Probe& probe) {
    if (observer != nullptr) (*observer)(probe);
    const int64_t size = probe.type == Probe::Type::kI64 ? 8 : 4;
    world->ranks().batch->Broadcast(probe.data, *probe.n_rows * probe.cols * size, 0);
  };
  RunStep(&shared);
}

// Bad bytes are met by the rank that owns them.
void Executor::Impl::ShareFault() {
  if (!world) return;
  world->ranks().world->ThrowIfFailed();
  fault = world->Share(fault);
}

// What a slot begins with out of the driver's prefix cache. Rings are the same on all ranks.
void Executor::Impl::SendRings(SeqSlot slot) {
  const int64_t tokens = kv.length(slot);
  rings.resize(static_cast<size_t>(kv.ring_bytes()));
  kv.SaveRings(slot, tokens, rings.data());
  RankRecords& records = world->records();
  records.Begin(RankRecords::Kind::kRings);
  records.Put(&slot, sizeof slot), records.Put(&tokens, sizeof tokens);
  records.Put(rings.data(), std::ssize(rings));
  records.Send();
}

void Executor::Impl::TakeRings() {
  SeqSlot slot = 0;
  int64_t tokens = 0;
  RankRecords& records = world->records();
  records.Take(&slot, sizeof slot), records.Take(&tokens, sizeof tokens);
  rings.resize(static_cast<size_t>(kv.ring_bytes()));
  records.Take(rings.data(), std::ssize(rings));
  kv.PutRings(slot, tokens, rings.data());
}

void Executor::Impl::Plant(uint64_t seed) { FillCaches(kv, config, numerics, seed); }

void Executor::Impl::Follow() {
  DI_CHECK(world && !world->is_driver()) << "nobody to follow";
  RankRecords& records = world->records();
  const auto take = [&](void* p, int64_t bytes) { records.Take(p, bytes); };
  const int own = world->ranks().layout.batch(world->ranks().rank);
  const auto take_batch = [&](const auto& inputs_of_batch) {
    for (int b = n_batches() - 1; b >= own; --b) inputs_of_batch();
    own > 0 ? records.SkipRest() : records.End();
  };
  for (;;) {
    uint64_t seed = 0;
    const RankRecords::Kind kind = records.Receive();
    switch (kind) {
      case RankRecords::Kind::kStep:
      case RankRecords::Kind::kProbedStep:
        take_batch([&] { ForEachInput(inputs.inputs(), engram_dims(), take); });
        if (kind == RankRecords::Kind::kStep)
          RunStep(nullptr);
        else
          RunProbedStep(nullptr);
        break;
      case RankRecords::Kind::kDraft:
        take_batch([&] { drafter->ForEachInput(take); });
        fault.kind = Fault::kNone;
        drafter->Run(team, nullptr);
        ShareFault();
        break;
      case RankRecords::Kind::kRings:
        TakeRings();
        records.End();
        break;
      case RankRecords::Kind::kPlant:
        take(&seed, sizeof seed);
        records.End();
        Plant(seed);
        break;
      case RankRecords::Kind::kLoad:
      case RankRecords::Kind::kStop:
        return;
    }
  }
}

namespace {

void CheckSeqRows(std::span<const SeqRows> seqs, const ModelConfig& config,
                  const EngineOptions& options) {
  int64_t rows = 0;
  for (const SeqRows& seq : seqs) {
    rows += static_cast<int64_t>(seq.tokens.size()) - seq.first;
    for (size_t i = static_cast<size_t>(seq.first); i < seq.tokens.size(); ++i) {
      if (seq.tokens[i] >= 0 && seq.tokens[i] < config.vocab_size) continue;
      throw Error(Code::kInvalid, fmt::format("token id at position {}: expected 0 to {}, found {}",
                                              i, config.vocab_size - 1, seq.tokens[i]));
    }
  }
  DI_CHECK(rows <= options.max_num_batched_tokens &&
           static_cast<int64_t>(seqs.size()) <= options.max_num_seqs)
      << rows << " rows of " << seqs.size() << " sequences";
}

}  // namespace

Executor::Executor(const ExecutorOptions& options) {
  try {
    impl_ = std::make_unique<Impl>(options);
  } catch (const Error& e) {
    if (options.world != nullptr)
      options.world->Abort(fmt::format("rank {}: {}", options.world->rank(), e.what()));
    throw;
  }
}

Executor::~Executor() {
  if (!impl_->world || !impl_->world->is_driver()) return;
  impl_->world->records().Begin(RankRecords::Kind::kStop);
  impl_->world->records().Send();
}

const ModelConfig& Executor::config() const { return impl_->config; }
const Tokenizer& Executor::tokenizer() const {
  DI_CHECK(impl_->tokenizer) << "synthetic models have no tokenizer";
  return *impl_->tokenizer;
}
bool Executor::has_tokenizer() const { return impl_->tokenizer.has_value(); }
const std::string& Executor::model_dir() const { return impl_->dir; }
std::span<const std::string> Executor::unused_tensors() const { return impl_->checkpoint.unused(); }
KvPool& Executor::kv() { return impl_->kv; }
const EngineOptions& Executor::options() const { return impl_->options; }
int64_t Executor::PlannedBytes(const std::string& prefix) const {
  return impl_->memory.BookedBytes(prefix);
}

void Executor::SetProfile(StepProfile* steps, StepProfile* drafts) {
  impl_->profile = steps;
  impl_->draft_profile = drafts;
}

CommStats Executor::TakeExchanges() {
  return impl_->world ? impl_->world->TakeStats() : CommStats{};
}

void Executor::PlantCaches(uint64_t seed) {
  if (impl_->world) {
    RankRecords& records = impl_->world->records();
    records.Begin(RankRecords::Kind::kPlant);
    records.Put(&seed, sizeof seed);
    records.Send();
  }
  impl_->Plant(seed);
}

void Executor::PoisonTemporaries() {
  std::memset(impl_->arena.base(), 0xff, static_cast<size_t>(impl_->arena.bytes()));
}

void Executor::ShufflePhases(uint32_t seed) { impl_->shuffle_seed = seed; }

std::span<const float> Executor::Step(std::span<const SeqRows> seqs, const ProbeFn* observer,
                                      bool draft_rows) {
  Impl& m = *impl_;
  CheckSeqRows(seqs, m.config, m.options);
  StepInputs* in = m.inputs.inputs();
  for (const SeqRows& seq : seqs) {
    if (m.world && m.kv.IsJustLoaded(seq.slot)) m.SendRings(seq.slot);
  }
  const bool shares_probes = m.world && observer != nullptr;
  m.Tell(shares_probes ? RankRecords::Kind::kProbedStep : RankRecords::Kind::kStep,
         [&](int batch, const auto& put) {
           m.FillInputs(seqs, batch, draft_rows);
           if (m.world) ForEachInput(in, m.engram_dims(), put);
         });
  if (shares_probes)
    m.RunProbedStep(observer);
  else
    m.RunStep(observer);
  m.ThrowFault();
  return {m.last.logits,
          static_cast<size_t>(in->n_world_samples) * static_cast<size_t>(m.config.vocab_size)};
}

void Executor::Follow() {
  try {
    impl_->Follow();
  } catch (const Error& e) {
    impl_->world->ranks().world->Abort(e.what());
    throw;
  }
}

TokenId Executor::LargestLogit(std::span<const float> row) const {
  const Impl& m = *impl_;
  const int64_t r = (row.data() - m.last.logits) / m.config.vocab_size;
  DI_CHECK(r >= 0 && r < m.inputs.inputs()->n_world_samples) << "row " << r;
  return LargestOfParts(m.last.top + r * m.team.size(), m.team.size());
}

int64_t Executor::max_logits() const { return impl_->max_logits; }

int64_t Executor::draft_tokens() const {
  return impl_->drafter ? impl_->config.dspark_block_size : 0;
}

Drafts Executor::Draft(std::span<const DraftSeq> seqs) {
  Impl& m = *impl_;
  DI_CHECK(m.drafter.has_value()) << "no draft stages";
  m.fault.kind = Fault::kNone;
  m.Tell(RankRecords::Kind::kDraft, [&](int batch, const auto& put) {
    m.drafter->Fill(seqs, batch);
    if (m.world) m.drafter->ForEachInput(put);
  });
  const Drafts drafts = m.drafter->Run(m.team, m.draft_profile);
  m.ShareFault();
  m.ThrowFault();
  return drafts;
}

double Executor::StepBytes(int64_t rows) const { return impl_->step_bytes(rows, 0); }
double Executor::DraftBytes() const {
  return impl_->step_bytes.Draft(1) + impl_->step_bytes.DraftRows();
}

int64_t Executor::BytesPerToken(int64_t context) const {
  return static_cast<int64_t>(impl_->step_bytes(1, std::max<int64_t>(context - 1, 0)));
}

std::vector<TokenId> EncodePrompt(const Executor& executor, std::string_view text) {
  std::vector<TokenId> ids = executor.tokenizer().Encode(text);
  const TokenId bos = executor.config().bos_token_id;
  if (ids.empty() || ids[0] != bos) ids.insert(ids.begin(), bos);
  return ids;
}

}  // namespace deepinfer
