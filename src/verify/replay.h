// Runs the prompt of a golden set through an executor and gathers what the set has arrays for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "verify/golden.h"

namespace deepinfer {

struct ReplayedDraft {
  GoldenDraft draft;
  std::vector<float> logits;      // [block, vocab_size]
  std::vector<TokenId> verified;  // empty for the first draft
};

struct Replayed {
  // Under the names and in the shapes of the set. Arrays of which the engine did not compute every
  // row are missing.
  std::map<std::string, GoldenArray, std::less<>> arrays;
  std::vector<TokenId> argmax;  // per prompt position; empty after ReplayLayers
  std::vector<TokenId> greedy;  // as many as the set has; empty after ReplayLayers
};

// Arrays that belong to the draft stages: see ReplayDrafts.
bool IsDraftArray(std::string_view array);

// The whole model: prompt in steps of at most `chunk` rows (0: one step), then greedy decoding, one
// token a step. The executor has all_logits, a free sequence slot, and room for a step of that many
// rows and for prompt and greedy tokens. Throws Error kCorrupt when an array of the set has another
// width than the model computes.
Replayed ReplayModel(Executor& executor, const GoldenSet& set, int64_t chunk);

// Every layer by itself: gets the set's streams.L and pre.L as input, whatever the layer before
// computed; what it makes of them is gathered as streams.(L+1) and pre.(L+1). The layers run in
// order, so caches and selections that later layers reuse come from exactly fed layers too. The set
// has streams.
Replayed ReplayLayers(Executor& executor, const GoldenSet& set, int64_t chunk);

// The first draft of the set, then its speculative steps: every one drafts behind the set's own
// anchor, verifies the set's own drafts, and goes back to what the set accepted. The executor as
// above, with draft stages.
std::vector<ReplayedDraft> ReplayDrafts(Executor& executor, const GoldenSet& set, int64_t chunk);

}  // namespace deepinfer
