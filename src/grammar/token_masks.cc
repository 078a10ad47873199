#include "grammar/token_masks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer {
namespace {

// A state has a table of 1 KiB, a mask 16 KiB at the released vocabulary.
constexpr int64_t kMaxStates = 50'000;
constexpr size_t kMaxMasks = 2'500;

}  // namespace

TokenMasks::TokenMasks(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const TokenTrie> trie, std::vector<TokenId> stop_tokens,
                       int64_t mask_size)
    : automaton_(std::move(grammar)),
      trie_(std::move(trie)),
      stop_tokens_(std::move(stop_tokens)),
      mask_size_(mask_size),
      path_(static_cast<size_t>(trie_->max_depth()) + 1) {
  DI_CHECK(mask_size_ >= trie_->vocab_size());
}

GrammarState TokenMasks::Make(Automaton::State state) const {
  GrammarState result;
  result.state_ = state;
  result.epoch_ = epoch_;
  result.meaning_ = std::make_shared<const Automaton::Meaning>(automaton_.MeaningOf(state));
  return result;
}

GrammarState TokenMasks::Start() { return Make(automaton_.start()); }

// Makes room when there are too many states.
Automaton::State TokenMasks::Find(const GrammarState& state) {
  if (automaton_.n_states() > kMaxStates) {
    automaton_.Clear();
    masks_.clear();
    ++epoch_;
  }
  return state.epoch_ == epoch_ ? state.state_ : automaton_.StateOf(*state.meaning_);
}

bool TokenMasks::CanEnd(const GrammarState& state) { return state.meaning_->can_end; }

bool TokenMasks::Advance(TokenId token, GrammarState* state) {
  if (std::ranges::find(stop_tokens_, token) != stop_tokens_.end()) return CanEnd(*state);
  if (token < 0 || token >= trie_->vocab_size()) return false;
  if (trie_->markup_token() == token && !automaton_.grammar().has_markup()) return false;
  const std::string_view bytes = trie_->BytesOf(token);
  return !bytes.empty() && AdvanceText(bytes, state);
}

bool TokenMasks::AdvanceText(std::string_view text, GrammarState* state) {
  Automaton::State at = Find(*state);
  for (const char c : text) {
    at = automaton_.Step(at, static_cast<uint8_t>(c));
    if (at == Automaton::kDead) return false;
  }
  *state = Make(at);
  return true;
}

const TokenMask& TokenMasks::Mask(const GrammarState& state) {
  const Automaton::State at = Find(state);
  const auto kept = masks_.find(at);
  if (kept != masks_.end()) return kept->second;
  if (masks_.size() == kMaxMasks) masks_.clear();
  ++n_masks_computed_;
  return masks_.emplace(at, ComputeMask(at)).first->second;
}

TokenMask TokenMasks::ComputeMask(Automaton::State state) {
  TokenMask mask(mask_size_);
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  path_[0] = state;
  for (int32_t i = 0; i < trie_->n_nodes();) {
    const TokenTrie::Node& node = nodes[static_cast<size_t>(i)];
    const auto depth = static_cast<size_t>(node.depth);
    const Automaton::State next = automaton_.Step(path_[depth - 1], node.byte);
    if (next == Automaton::kDead) {
      i = node.next;
      continue;
    }
    path_[depth] = next;
    for (const TokenId token : trie_->TokensOf(i)) mask.Allow(token);
    ++i;
  }
  if (trie_->markup_token() && automaton_.grammar().has_markup()) {
    Automaton::State at = state;
    for (const char c : trie_->BytesOf(*trie_->markup_token())) {
      if (at != Automaton::kDead) at = automaton_.Step(at, static_cast<uint8_t>(c));
    }
    if (at != Automaton::kDead) mask.Allow(*trie_->markup_token());
  }
  for (const TokenId token : stop_tokens_) {
    if (automaton_.CanEnd(state))
      mask.Allow(token);
    else
      mask.Forbid(token);
  }
  return mask;
}

}  // namespace deepinfer
