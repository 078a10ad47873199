// A grammar run over bytes: a deterministic automaton, built as it is used.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace deepinfer {

// A state stands for everything that may follow. Stepping costs a table look-up once the step has
// been taken before, else time in proportion to what the state stands for. Not for several threads
// at once.
class Automaton {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;  // nothing can follow

  explicit Automaton(std::shared_ptr<const Grammar> grammar);

  State start() const { return start_; }
  // The state behind one more byte. From every state but kDead some text leads to an end.
  State Step(State state, uint8_t byte) {
    const State next = next_[static_cast<size_t>(state)][byte];
    return next == kUnknown ? ComputeStep(state, byte) : next;
  }
  // Whether the text may end here.
  bool CanEnd(State state) const { return states_[static_cast<size_t>(state)].can_end; }
  int64_t n_states() const { return static_cast<int64_t>(states_.size()); }
  const Grammar& grammar() const { return *grammar_; }

  // What a state means, and back: for states that outlive a Clear.
  struct Place {
    int32_t node;
    int32_t stack;  // index of the innermost call, -1: none
    auto operator<=>(const Place&) const = default;
  };
  struct Meaning {
    std::vector<Place> places;  // sorted, each with a byte to follow
    bool can_end = false;
    bool operator==(const Meaning&) const = default;
  };
  const Meaning& MeaningOf(State state) const { return states_[static_cast<size_t>(state)]; }
  State StateOf(const Meaning& meaning);
  // Where a stack's innermost call goes on when it ends.
  Place Behind(int32_t stack) const {
    const Call& call = calls_[static_cast<size_t>(stack)];
    return {call.node, call.outer};
  }
  // Forgets all states but the first.
  void Clear();

 private:
  static constexpr State kUnknown = -2;
  // A call that has not ended yet.
  struct Call {
    int32_t node;  // where it goes on behind it
    int32_t outer;
    int depth;
  };
  struct MeaningHash {
    size_t operator()(const Meaning& meaning) const;
  };

  State ComputeStep(State state, uint8_t byte);
  void Reach(int32_t node, int32_t stack);
  Meaning Close();
  int32_t StackOf(int32_t node, int32_t outer);
  int Depth(int32_t stack) const {
    return stack < 0 ? 0 : calls_[static_cast<size_t>(stack)].depth;
  }

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Call> calls_;
  std::unordered_map<uint64_t, int32_t> call_index_;
  std::vector<Meaning> states_;
  std::vector<std::array<State, 256>> next_;
  std::unordered_map<Meaning, State, MeaningHash> index_;
  std::vector<Place> work_;
  std::unordered_map<uint64_t, bool> seen_;
  State start_ = 0;
};

}  // namespace deepinfer
