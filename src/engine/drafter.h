// Drafter: the draft stages of an executor (spec 05 section 4), as plans of their own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/team.h"
#include "engine/rank_records.h"
#include "kv/step_inputs.h"
#include "model/forward.h"
#include "sampler/philox.h"

namespace deepinfer {

// A sequence that is drafted for, right behind its committed tokens.
struct DraftSeq {
  SeqSlot slot;
  TokenId anchor;     // the newest token, not in the caches yet
  float temperature;  // 0: drafts are the largest logits; else draws with the noise of `stream`
  uint64_t seed;
  uint32_t sample;
  Stream stream;
};

// Per sequence a block of drafts.
struct Drafts {
  std::span<TokenId> tokens;      // [n, block]
  std::span<const float> logits;  // [n, block, vocabulary] that they were chosen from
  std::span<float> confidence;    // [n, block] before the sigmoid
};

class Drafter {
 public:
  // model: what the forward plans are built from. max_seqs: most sequences of a draft.
  Drafter(const ForwardContext& model, int64_t max_seqs, int threads);

  // Bytes of arena that the plans need; nothing in it outlives a draft but its results.
  int64_t plan_bytes() const { return plan_bytes_; }
  // Builds the plans in that memory. Once, before the first Run.
  void Build(std::byte* base);

  // The inputs of the next draft: the sequences of `batch`, see Layout. Does not allocate.
  void Fill(std::span<const DraftSeq> seqs, int batch);
  // Calls copy(pointer, bytes) for everything that a draft reads, counts first.
  template <class Copy>
  void ForEachInput(const Copy& copy) {
    deepinfer::ForEachInput(inputs_.inputs(), {0, 0}, copy);
    const int64_t n = inputs_.inputs()->n_seqs;
    const auto array = [&](auto& data) {
      copy(data.data(), n * static_cast<int64_t>(sizeof data[0]));
    };
    array(temperature_), array(seed_), array(sample_), array(stream_), array(previous_);
  }
  // Drafts for what Fill was given. Results are valid until the arena is used for something else.
  // Does not allocate. profile: null, or where the draft is recorded as a step is.
  Drafts Run(Team& team, StepProfile* profile);

 private:
  struct Bucket {
    RegionPlan plan;
    DraftOutput output;
  };
  Bucket BuildBucket(int64_t seqs, std::byte* base, int64_t* bytes);

  StepBlock inputs_;
  ForwardContext model_;
  int64_t block_, max_seqs_;
  int threads_;
  int64_t plan_bytes_ = 0;
  std::vector<Bucket> buckets_;  // by rising number of sequences
  // Per sequence.
  std::vector<DraftRows> rows_;
  std::vector<float> temperature_;
  std::vector<uint64_t> seed_;
  std::vector<uint32_t> sample_, stream_;
  std::vector<TokenId> previous_, tokens_;
};

}  // namespace deepinfer
