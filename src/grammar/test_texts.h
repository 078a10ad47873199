// What tests need to ask of a grammar.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/automaton.h"

namespace deepinfer {

// Whether the text matches from end to end.
inline bool Matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Automaton automaton(grammar);
  Automaton::State state = automaton.start();
  for (const char c : text) {
    state = automaton.Step(state, static_cast<uint8_t>(c));
    if (state == Automaton::kDead) return false;
  }
  return automaton.CanEnd(state);
}

// Finds short ways to an end.
class Endings {
 public:
  explicit Endings(const std::shared_ptr<const Grammar>& grammar)
      : grammar_(grammar), bytes_(static_cast<size_t>(grammar->n_nodes()), kFar) {
    for (int32_t node = 0; node < grammar->n_nodes(); ++node) {
      if (grammar->IsEnd(node)) At(node) = 0;
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (int32_t node = 0; node < grammar->n_nodes(); ++node) {
        for (const Grammar::Edge& edge : grammar->EdgesOf(node)) {
          int64_t bytes = At(edge.target) + (edge.kind == Grammar::EdgeKind::kByte ? 1 : 0);
          if (edge.kind == Grammar::EdgeKind::kCall) bytes += At(grammar->rule(edge.rule).start);
          if (bytes >= At(node)) continue;
          At(node) = bytes;
          changed = true;
        }
      }
    }
  }

  // A text that leads from the state to an end; nothing when none is found.
  std::optional<std::string> Find(Automaton* automaton, Automaton::State state) {
    std::string text;
    while (!automaton->CanEnd(state)) {
      int64_t best = Left(*automaton, state);
      int best_byte = -1;
      for (int byte = 0; byte < 256; ++byte) {
        const Automaton::State next = automaton->Step(state, static_cast<uint8_t>(byte));
        if (next == Automaton::kDead || Left(*automaton, next) >= best) continue;
        best = Left(*automaton, next);
        best_byte = byte;
      }
      if (best_byte < 0) return std::nullopt;
      text += static_cast<char>(best_byte);
      state = automaton->Step(state, static_cast<uint8_t>(best_byte));
    }
    return text;
  }

 private:
  static constexpr int64_t kFar = int64_t{1} << 40;

  int64_t& At(int32_t node) { return bytes_[static_cast<size_t>(node)]; }

  // The least number of bytes that any place of the state needs; 0 where the text may end.
  int64_t Left(const Automaton& automaton, Automaton::State state) {
    if (automaton.CanEnd(state)) return 0;
    int64_t least = kFar;
    for (Automaton::Place place : automaton.MeaningOf(state).places) {
      int64_t bytes = At(place.node);
      while (place.stack >= 0) {
        place = automaton.Behind(place.stack);
        bytes += At(place.node);
      }
      least = std::min(least, bytes);
    }
    return least;
  }

  std::shared_ptr<const Grammar> grammar_;
  std::vector<int64_t> bytes_;  // by node: to the end of its rule
};

}  // namespace deepinfer
