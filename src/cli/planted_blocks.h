// Draft blocks whose worth is known (bench drafts): what is accepted and how sure the draft stages
// are of it is planted, everything else of a step is computed as always.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "engine/planted_drafts.h"

namespace deepinfer {

// Every position of an answer has a chance of its own, which is the confidence of a draft for it,
// so that confidences are calibrated, and a verdict that comes true with that chance. Chances are
// independent, beta-distributed around one mean such that verifying whole blocks brings `tau`
// tokens a step. Answers of the same blocks meet the same verdicts, whatever their depths.
class PlantedBlocks {
 public:
  // 1 < tau < block + 1.
  PlantedBlocks(double tau, int64_t block, uint64_t seed);

  int64_t block() const { return block_; }
  // Of a draft for the token at `position`, before the sigmoid.
  float Confidence(int64_t position) { return At(position).confidence; }
  bool Accepts(int64_t position) { return At(position).is_accepted; }

  // Tokens that a verification of `depth` drafts brings in the mean.
  double Tokens(int64_t depth) const;
  // The same in an answer that goes on from `first` and reaches `end`.
  double TokensBetween(int64_t first, int64_t end, int64_t depth);

 private:
  struct Draft {
    float confidence;
    bool is_accepted;
  };
  const Draft& At(int64_t position);

  const int64_t block_;
  double mean_chance_ = 0;
  std::mt19937_64 random_;
  std::vector<Draft> drafts_;  // by position, as far as they were asked for
};

// The drafts of one answer.
class PlantedAnswer : public PlantedDrafts {
 public:
  // depth: of every verification; nothing: the engine chooses. blocks outlives this.
  PlantedAnswer(PlantedBlocks* blocks, std::optional<int64_t> depth)
      : blocks_(*blocks), depth_(depth) {}

  void Drafted(RequestId id, int64_t n_tokens, std::span<TokenId> tokens,
               std::span<float> confidence) override;
  std::optional<int64_t> Depth() const override { return depth_; }
  std::optional<bool> Accepts(RequestId id, int64_t n_tokens, int64_t slot) override;

 private:
  PlantedBlocks& blocks_;
  std::optional<int64_t> depth_;
};

}  // namespace deepinfer
