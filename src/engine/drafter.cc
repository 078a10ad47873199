#include "engine/drafter.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer {

Drafter::Drafter(const ForwardContext& model, int64_t max_seqs, int threads)
    : inputs_(max_seqs * model.config.dspark_block_size, max_seqs, 0, 0),
      model_(model),
      block_(model.config.dspark_block_size),
      max_seqs_(max_seqs),
      threads_(threads),
      temperature_(static_cast<size_t>(max_seqs)),
      seed_(static_cast<size_t>(max_seqs)),
      sample_(static_cast<size_t>(max_seqs)),
      stream_(static_cast<size_t>(max_seqs)),
      previous_(static_cast<size_t>(max_seqs)),
      tokens_(static_cast<size_t>(max_seqs * block_)) {
  rows_.reserve(static_cast<size_t>(max_seqs));
  model_.inputs = inputs_.inputs();
  BuildBucket(max_seqs, nullptr, &plan_bytes_);
}

Drafter::Bucket Drafter::BuildBucket(int64_t seqs, std::byte* base, int64_t* bytes) {
  const DraftInputs inputs{
      .sampling = {temperature_.data(), seed_.data(), sample_.data(), stream_.data()},
      .previous = previous_.data(),
      .tokens = tokens_.data()};
  PlanBuilder builder(seqs * block_, threads_, base);
  const DraftOutput output = BuildDraft(model_, inputs, builder);
  if (bytes != nullptr) *bytes = builder.memory().peak_bytes();
  return {builder.Take(), output};
}

void Drafter::Build(std::byte* base) {
  for (int64_t n = 1; n < max_seqs_; n *= 2) buckets_.push_back(BuildBucket(n, base, nullptr));
  buckets_.push_back(BuildBucket(max_seqs_, base, nullptr));
}

void Drafter::Fill(std::span<const DraftSeq> seqs, int batch) {
  DI_CHECK(!seqs.empty() && std::ssize(seqs) <= max_seqs_) << seqs.size() << " sequences";
  rows_.clear();
  for (const DraftSeq& seq : seqs) {
    if (model_.kv.batch(seq.slot) != batch) continue;
    const size_t s = rows_.size();
    rows_.push_back({seq.slot, seq.anchor});
    previous_[s] = seq.anchor;
    temperature_[s] = seq.temperature;
    seed_[s] = seq.seed;
    sample_[s] = seq.sample;
    stream_[s] = static_cast<uint32_t>(seq.stream);
  }
  StepInputs* in = inputs_.inputs();
  model_.kv.FillDraft(rows_, block_, model_.config.dspark_noise_token_id, in);
  BatchNumbers numbers(in);
  for (const DraftSeq& seq : seqs) numbers.Add(block_, 0, model_.kv.batch(seq.slot) == batch);
}

Drafts Drafter::Run(Team& team, StepProfile* profile) {
  const int64_t n_rows = inputs_.inputs()->n_world_rows, n_seqs = n_rows / block_;
  const auto bucket = std::find_if(buckets_.begin(), buckets_.end(),
                                   [&](const Bucket& b) { return b.plan.rows >= n_rows; });
  if (profile != nullptr) profile->Begin(team.size(), bucket->plan.phases.size(), n_rows, n_seqs);
  RunPlan(team, bucket->plan, nullptr, profile);
  const auto rows = static_cast<size_t>(n_rows);
  return {{bucket->output.tokens, rows},
          {bucket->output.logits, rows * static_cast<size_t>(model_.config.vocab_size)},
          {bucket->output.confidence, rows}};
}

}  // namespace deepinfer
