#include "engine/rank_load.h"

#include <string>
#include <type_traits>
#include <vector>

#include "engine/rank_records.h"

namespace deepinfer {

namespace {

static_assert(sizeof(EngineOptions) == 456 && sizeof(SyntheticModel) == 48,
              "is what changed in them part of ForEachOption?");

constexpr int64_t kRecordBytes = 1024;

// Calls value(x) for all that an executor is made of. synthetic: there or not.
template <class Value>
void ForEachOption(EngineOptions& o, const Value& value) {
  value(o.model);
  bool synthetic = o.synthetic.has_value();
  value(synthetic);
  if (synthetic) {
    if (!o.synthetic) o.synthetic.emplace();
    value(*o.synthetic);
  }
  for (int64_t* n : {&o.max_model_len, &o.max_num_batched_tokens, &o.max_num_seqs, &o.num_kv_blocks,
                     &o.prefix_cache_mib, &o.threads, &o.num_speculative_tokens, &o.batch_ranks,
                     &o.rank_timeout_s, &o.ranks, &o.tensor_parallel_size, &o.expert_parallel_size})
    value(*n);
  value(o.prefill_slowdown), value(o.routing_overlap);
  for (std::string* s : {&o.isa, &o.numerics, &o.routing, &o.reduce, &o.speculative, &o.draft_depth,
                         &o.layout, &o.engram})
    value(*s);
}

struct Writer {
  RankRecords& record;
  void operator()(std::string& text) const {
    const int64_t n = std::ssize(text);
    record.Put(&n, sizeof n);
    record.Put(text.data(), n);
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void operator()(T& value) const { record.Put(&value, sizeof value); }
};

struct Reader {
  RankRecords& record;
  void operator()(std::string& text) const {
    int64_t n = 0;
    record.Take(&n, sizeof n);
    text.resize(static_cast<size_t>(n));
    record.Take(text.data(), n);
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void operator()(T& value) const { record.Take(&value, sizeof value); }
};

}  // namespace

void SendLoad(const ExecutorOptions& options) {
  RankRecords record(options.world, kRecordBytes);
  record.Begin(RankRecords::Kind::kLoad);
  EngineOptions engine = options.engine;
  ForEachOption(engine, Writer{record});
  record.Put(&options.all_logits, sizeof options.all_logits);
  record.Send();
}

void SendEnd(Comm* world) {
  RankRecords record(world, 0);
  record.Begin(RankRecords::Kind::kStop);
  record.Send();
}

void FollowDriver(Comm* world) {
  for (;;) {
    RankRecords record(world, kRecordBytes);
    if (record.Receive() == RankRecords::Kind::kStop) return;
    ExecutorOptions options;
    options.world = world;
    ForEachOption(options.engine, Reader{record});
    record.Take(&options.all_logits, sizeof options.all_logits);
    record.End();
    Executor(options).Follow();
  }
}

}  // namespace deepinfer
