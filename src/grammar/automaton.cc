#include "grammar/automaton.h"

#include <algorithm>
#include <utility>

namespace deepinfer {
namespace {

uint64_t Key(int32_t a, int32_t b) {
  return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
}

}  // namespace

size_t Automaton::MeaningHash::operator()(const Meaning& meaning) const {
  uint64_t hash = meaning.can_end ? 1 : 0;
  for (const Place& place : meaning.places)
    hash = (hash ^ Key(place.node, place.stack)) * 0x9E3779B97F4A7C15u + (hash >> 29);
  return hash;
}

Automaton::Automaton(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  Reach(grammar_->rule(grammar_->root()).start, -1);
  start_ = StateOf(Close());
}

Automaton::State Automaton::StateOf(const Meaning& meaning) {
  const auto [place, added] = index_.emplace(meaning, static_cast<State>(states_.size()));
  if (added) {
    states_.push_back(meaning);
    next_.emplace_back().fill(kUnknown);
  }
  return place->second;
}

void Automaton::Clear() {
  const Meaning first = states_[static_cast<size_t>(start_)];
  states_.clear();
  next_.clear();
  index_.clear();
  start_ = StateOf(first);
}

int32_t Automaton::StackOf(int32_t node, int32_t outer) {
  // What ends with the call itself needs no place to go on.
  if (grammar_->OnlyReturns(node)) return outer;
  const auto [place, added] =
      call_index_.emplace(Key(node, outer), static_cast<int32_t>(calls_.size()));
  if (added) calls_.push_back({node, outer, Depth(outer) + 1});
  return place->second;
}

// Only places from which an end can be reached without nesting too deep.
void Automaton::Reach(int32_t node, int32_t stack) {
  if (Depth(stack) + grammar_->Nesting(node) > Grammar::kMaxNesting) return;
  if (seen_.emplace(Key(node, stack), true).second) work_.push_back({node, stack});
}

// Follows what takes no byte.
Automaton::Meaning Automaton::Close() {
  Meaning meaning;
  while (!work_.empty()) {
    const Place place = work_.back();
    work_.pop_back();
    if (grammar_->IsEnd(place.node)) {
      if (place.stack < 0) {
        meaning.can_end = true;
      } else {
        const Call call = calls_[static_cast<size_t>(place.stack)];
        Reach(call.node, call.outer);
      }
    }
    bool takes_byte = false;
    for (const Grammar::Edge& edge : grammar_->EdgesOf(place.node)) {
      switch (edge.kind) {
        case Grammar::EdgeKind::kByte:
          takes_byte = true;
          break;
        case Grammar::EdgeKind::kEmpty:
          Reach(edge.target, place.stack);
          break;
        case Grammar::EdgeKind::kCall:
          if (Depth(place.stack) + grammar_->Nesting(edge.target) <= Grammar::kMaxNesting)
            Reach(grammar_->rule(edge.rule).start, StackOf(edge.target, place.stack));
          break;
      }
    }
    if (takes_byte) meaning.places.push_back(place);
  }
  seen_.clear();
  std::ranges::sort(meaning.places);
  return meaning;
}

Automaton::State Automaton::ComputeStep(State state, uint8_t byte) {
  const std::vector<Place>& places = states_[static_cast<size_t>(state)].places;
  for (const Place& place : places) {
    for (const Grammar::Edge& edge : grammar_->EdgesOf(place.node)) {
      if (edge.kind == Grammar::EdgeKind::kByte && edge.low <= byte && byte <= edge.high)
        Reach(edge.target, place.stack);
    }
  }
  const Meaning meaning = Close();
  const bool dead = meaning.places.empty() && !meaning.can_end;
  const State next = dead ? kDead : StateOf(meaning);
  next_[static_cast<size_t>(state)][byte] = next;
  return next;
}

}  // namespace deepinfer
