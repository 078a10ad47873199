// What a verification found: worst difference per quantity, and every broken rule.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "verify/golden.h"
#include "verify/replay.h"
#include "verify/tolerance.h"

namespace deepinfer {

// Gathers the sets of one checkpoint and one numerics mode.
class Report {
 public:
  explicit Report(const std::string& mode) : tolerance_(ToleranceOf(mode)) {}

  // Whole-model values, tokens, selections and router choices of one set.
  void CheckModel(const GoldenSet& set, const Replayed& replayed);
  // Layers fed with exact inputs.
  void CheckLayers(const GoldenSet& set, const Replayed& replayed);
  // Drafts and verifications, in the order of ReplayDrafts.
  void CheckDrafts(const GoldenSet& set, const std::vector<ReplayedDraft>& replayed);
  // Rules that count all sets together. Once, after the last set.
  void Finish();

  int64_t sets() const { return sets_; }
  // One sentence per broken rule.
  const std::vector<std::string>& mismatches() const { return mismatches_; }

  // A table with the worst difference of every quantity, the layers, the broken rules, and a last
  // line "verify: S sets, M mismatches".
  std::string Text() const;

 private:
  // All float arrays of one quantity, e.g. the attn_in of all layers and sets.
  struct Quantity {
    int64_t arrays = 0;
    Distance worst = {0, 0};  // greatest in relation to its limit
    std::string where;        // of the worst
    EqualityTally together;   // rounded modes, ValueKind::kOther
  };
  // All integer arrays of one quantity. Rounded modes report router choices and selections only.
  struct Choices {
    int64_t rows = 0, differing = 0;
    bool required = true;
  };
  struct Tokens {
    int64_t compared = 0, differing = 0;
  };

  void CheckArray(const GoldenSet& set, const std::string& name, const GoldenArray& want,
                  const GoldenArray& got);
  void CheckFloats(const std::string& quantity, const std::string& where, ValueKind kind,
                   std::span<const float> want, std::span<const float> got);
  void CheckRows(const GoldenSet& set, const std::string& name, const GoldenArray& want,
                 const GoldenArray& got);
  // Returns how many slots were compared: those up to the first that differs.
  size_t CheckDraft(const GoldenSet& set, const std::string& where, const GoldenDraft& want,
                    std::span<const float> margin, const GoldenDraft& got);
  void CheckVerified(const GoldenSet& set, const GoldenSpeculation& want,
                     std::span<const TokenId> got);
  void CheckArgmax(const GoldenSet& set, const Replayed& replayed);
  void CheckGreedy(const GoldenSet& set, const Replayed& replayed);

  Tolerance tolerance_;
  int64_t sets_ = 0;
  std::map<std::string, Quantity> quantities_;
  std::map<std::string, Choices> choices_;
  Tokens argmax_, greedy_;  // positions above the near-tie limit; tokens
  Tokens drafts_, verified_;
  std::map<int, EqualityTally> streams_;  // by layer: streams that leave it, fed exactly
  std::map<int, EqualityTally> pre_;      // by layer: its pre-mix
  std::vector<std::string> mismatches_;
};

}  // namespace deepinfer
