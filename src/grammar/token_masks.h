// Which tokens may come next under a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "base/token_mask.h"
#include "grammar/automaton.h"
#include "grammar/token_trie.h"

namespace deepinfer {

// Where a text stands in its grammar. A small value: to try tokens and take them back, keep a copy.
// Belongs to the TokenMasks that made it.
class GrammarState {
 public:
  GrammarState() = default;

 private:
  friend class TokenMasks;
  Automaton::State state_ = 0;
  uint32_t epoch_ = 0;
  std::shared_ptr<const Automaton::Meaning> meaning_;
};

// A grammar over a vocabulary. Masks are kept for the states that have been asked about, states and
// masks up to a fixed amount of memory (about 100 MB). Not for several threads at once.
//
// Cost: a mask that is kept, a look-up; a new one, a walk over the vocabulary's bytes that leaves
// out what cannot match (docs/grammar.md).
class TokenMasks {
 public:
  // stop_tokens: allowed exactly where the text may end. mask_size: tokens of the model, at least
  // those of the trie.
  TokenMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
             std::vector<TokenId> stop_tokens, int64_t mask_size);

  GrammarState Start();
  // Every token whose bytes keep the text completable. The reference holds until the next call.
  const TokenMask& Mask(const GrammarState& state);
  // Goes on with a token. false: it is not allowed, and the state stays. A stop token is no step:
  // true where the text may end.
  bool Advance(TokenId token, GrammarState* state);
  // The same for text.
  bool AdvanceText(std::string_view text, GrammarState* state);
  bool CanEnd(const GrammarState& state);

  int64_t n_states() const { return automaton_.n_states(); }
  int64_t n_masks_computed() const { return n_masks_computed_; }

 private:
  Automaton::State Find(const GrammarState& state);
  GrammarState Make(Automaton::State state) const;
  TokenMask ComputeMask(Automaton::State state);

  Automaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<TokenId> stop_tokens_;
  int64_t mask_size_;
  uint32_t epoch_ = 0;  // number of times that the automaton was cleared
  std::unordered_map<Automaton::State, TokenMask> masks_;
  std::vector<Automaton::State> path_;
  int64_t n_masks_computed_ = 0;
};

}  // namespace deepinfer
