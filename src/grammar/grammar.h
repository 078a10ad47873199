// A grammar: rules that call each other, each a small automaton over bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/code_points.h"

namespace deepinfer {

// Rules may call themselves; a text is nested at most kMaxNesting calls deep. Immutable; any thread
// may use it.
class Grammar {
 public:
  static constexpr int kMaxNesting = 192;

  enum class EdgeKind : uint8_t { kByte, kEmpty, kCall };
  struct Edge {
    EdgeKind kind;
    uint8_t low, high;  // kByte: inclusive
    int32_t rule;       // kCall
    int32_t target;
  };
  struct Rule {
    int32_t start = -1, end = -1;  // nothing leaves `end`
  };

  std::span<const Edge> EdgesOf(int32_t node) const {
    return std::span(edges_).subspan(
        static_cast<size_t>(first_edge_[node]),
        static_cast<size_t>(first_edge_[node + 1] - first_edge_[node]));
  }
  const Rule& rule(int32_t index) const { return rules_[static_cast<size_t>(index)]; }
  int32_t root() const { return root_; }
  bool IsEnd(int32_t node) const { return is_end_[static_cast<size_t>(node)]; }
  // From here the rule ends without a further byte or call.
  bool OnlyReturns(int32_t node) const { return only_returns_[static_cast<size_t>(node)]; }
  // How many more calls must be nested to get from a node to the end of its rule. More than
  // kMaxNesting: there is no way.
  int Nesting(int32_t node) const { return nesting_[static_cast<size_t>(node)]; }
  int64_t n_nodes() const { return static_cast<int64_t>(is_end_.size()); }
  // The text contains markup of tool calls, so that their token may be used.
  bool has_markup() const { return has_markup_; }

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  std::vector<Edge> edges_;
  std::vector<int32_t> first_edge_;
  std::vector<bool> is_end_, only_returns_;
  std::vector<int> nesting_;
  std::vector<Rule> rules_;
  int32_t root_ = 0;
  bool has_markup_ = false;
};

// Puts a grammar together from fragments. A fragment is used once.
class GrammarBuilder {
 public:
  struct Fragment {
    int32_t start, end;
  };

  Fragment Empty();
  Fragment Byte(uint8_t low, uint8_t high);
  Fragment Text(std::string_view text);
  Fragment Characters(const CodePoints& set);  // one of them, as UTF-8
  Fragment Sequence(std::span<const Fragment> parts);
  Fragment Sequence(std::initializer_list<Fragment> parts) {
    return Sequence(std::span(parts.begin(), parts.size()));
  }
  Fragment Choice(std::span<const Fragment> parts);  // of none: nothing matches
  Fragment Choice(std::initializer_list<Fragment> parts) {
    return Choice(std::span(parts.begin(), parts.size()));
  }
  Fragment Optional(Fragment f) { return Choice({f, Empty()}); }
  Fragment Star(Fragment f);
  Fragment Call(int32_t rule);
  // The rule at least `min` and at most `max` times; max -1: without limit. `between`, a rule,
  // stands between two of them; -1: nothing.
  Fragment Repeat(int32_t rule, int64_t min, int64_t max, int32_t between = -1);

  int32_t DeclareRule();
  void DefineRule(int32_t rule, Fragment f);
  int32_t Rule(Fragment f);

  // Low level: a node, and edges between nodes.
  int32_t Node();
  void Link(int32_t from, int32_t to);
  void Link(int32_t from, Fragment f, int32_t to);

  // The grammar of `root`. Throws Error kInvalid when no text matches it. Like all functions here,
  // throws Error kUnsupported when it gets too large.
  std::shared_ptr<const Grammar> Finish(int32_t root, bool has_markup = false);

 private:
  void AddEdge(int32_t from, const Grammar::Edge& edge);
  std::vector<int> ComputeNesting(const Grammar& g) const;

  std::vector<std::vector<Grammar::Edge>> nodes_;
  std::vector<Grammar::Rule> rules_;
};

}  // namespace deepinfer
