#include "grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace deepinfer {
namespace {

using Edge = Grammar::Edge;
using EdgeKind = Grammar::EdgeKind;

constexpr size_t kMaxNodes = size_t{1} << 20;
constexpr int kNever = 1 << 20;  // more nesting than any

}  // namespace

int32_t GrammarBuilder::Node() {
  if (nodes_.size() == kMaxNodes)
    throw Error(Code::kUnsupported,
                fmt::format("grammar: expected at most {} states, found more", kMaxNodes));
  nodes_.emplace_back();
  return static_cast<int32_t>(nodes_.size() - 1);
}

void GrammarBuilder::AddEdge(int32_t from, const Edge& edge) {
  nodes_[static_cast<size_t>(from)].push_back(edge);
}

void GrammarBuilder::Link(int32_t from, int32_t to) {
  AddEdge(from, {EdgeKind::kEmpty, 0, 0, -1, to});
}

void GrammarBuilder::Link(int32_t from, Fragment f, int32_t to) {
  Link(from, f.start);
  Link(f.end, to);
}

GrammarBuilder::Fragment GrammarBuilder::Empty() {
  const int32_t node = Node();
  return {node, node};
}

GrammarBuilder::Fragment GrammarBuilder::Byte(uint8_t low, uint8_t high) {
  const Fragment f{Node(), Node()};
  AddEdge(f.start, {EdgeKind::kByte, low, high, -1, f.end});
  return f;
}

GrammarBuilder::Fragment GrammarBuilder::Text(std::string_view text) {
  Fragment f = Empty();
  for (const char c : text) {
    const int32_t next = Node();
    const auto byte = static_cast<uint8_t>(c);
    AddEdge(f.end, {EdgeKind::kByte, byte, byte, -1, next});
    f.end = next;
  }
  return f;
}

GrammarBuilder::Fragment GrammarBuilder::Characters(const CodePoints& set) {
  const Fragment f{Node(), Node()};
  for (const ByteSequence& sequence : Utf8Sequences(set)) {
    int32_t at = f.start;
    for (int i = 0; i < sequence.size; ++i) {
      const int32_t next = i + 1 == sequence.size ? f.end : Node();
      const auto [low, high] = sequence.bytes[static_cast<size_t>(i)];
      AddEdge(at, {EdgeKind::kByte, low, high, -1, next});
      at = next;
    }
  }
  return f;
}

GrammarBuilder::Fragment GrammarBuilder::Sequence(std::span<const Fragment> parts) {
  if (parts.empty()) return Empty();
  for (size_t i = 0; i + 1 < parts.size(); ++i) Link(parts[i].end, parts[i + 1].start);
  return {parts.front().start, parts.back().end};
}

GrammarBuilder::Fragment GrammarBuilder::Choice(std::span<const Fragment> parts) {
  const Fragment f{Node(), Node()};
  for (const Fragment& part : parts) Link(f.start, part, f.end);
  return f;
}

GrammarBuilder::Fragment GrammarBuilder::Star(Fragment f) {
  const int32_t node = Node(), end = Node();
  Link(node, f, node);
  Link(node, end);
  return {node, end};
}

GrammarBuilder::Fragment GrammarBuilder::Call(int32_t rule) {
  const Fragment f{Node(), Node()};
  AddEdge(f.start, {EdgeKind::kCall, 0, 0, rule, f.end});
  return f;
}

GrammarBuilder::Fragment GrammarBuilder::Repeat(int32_t rule, int64_t min, int64_t max,
                                                int32_t between) {
  const Fragment f{Node(), Node()};
  int32_t at = f.start;
  if (min == 0) Link(at, f.end);
  const int64_t n = max < 0 ? std::max<int64_t>(min, 1) : max;
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0 && between >= 0) {
      const Fragment gap = Call(between);
      Link(at, gap.start);
      at = gap.end;
    }
    const Fragment one = Call(rule);
    Link(at, one.start);
    at = one.end;
    if (i + 1 >= min) Link(at, f.end);
    if (max < 0 && i + 1 == n) {  // and so on
      const Fragment more = between < 0 ? Call(rule) : Sequence({Call(between), Call(rule)});
      Link(at, more, at);
    }
  }
  return f;
}

int32_t GrammarBuilder::DeclareRule() {
  rules_.emplace_back();
  return static_cast<int32_t>(rules_.size() - 1);
}

void GrammarBuilder::DefineRule(int32_t rule, Fragment f) {
  const int32_t end = Node();
  Link(f.end, end);
  rules_[static_cast<size_t>(rule)] = {f.start, end};
}

int32_t GrammarBuilder::Rule(Fragment f) {
  const int32_t rule = DeclareRule();
  DefineRule(rule, f);
  return rule;
}

// Round n finds what needs n nested calls.
std::vector<int> GrammarBuilder::ComputeNesting(const Grammar& g) const {
  std::vector<int> nesting(nodes_.size(), kNever);
  for (const Grammar::Rule& rule : rules_) nesting[static_cast<size_t>(rule.end)] = 0;
  std::vector<std::vector<int32_t>> users(nodes_.size());  // whose value depends on a node's
  for (size_t node = 0; node < nodes_.size(); ++node) {
    for (const Edge& edge : nodes_[node]) {
      users[static_cast<size_t>(edge.target)].push_back(static_cast<int32_t>(node));
      if (edge.kind == EdgeKind::kCall)
        users[static_cast<size_t>(g.rule(edge.rule).start)].push_back(static_cast<int32_t>(node));
    }
  }
  std::vector<int32_t> work;
  for (const Grammar::Rule& rule : rules_) work.push_back(rule.end);
  while (!work.empty()) {
    const int32_t changed = work.back();
    work.pop_back();
    for (const int32_t user : users[static_cast<size_t>(changed)]) {
      int best = nesting[static_cast<size_t>(user)];
      for (const Edge& edge : nodes_[static_cast<size_t>(user)]) {
        int need = nesting[static_cast<size_t>(edge.target)];
        if (edge.kind == EdgeKind::kCall)
          need = std::max(need, nesting[static_cast<size_t>(g.rule(edge.rule).start)] + 1);
        best = std::min(best, need);
      }
      if (best < nesting[static_cast<size_t>(user)]) {
        nesting[static_cast<size_t>(user)] = best;
        work.push_back(user);
      }
    }
  }
  return nesting;
}

std::shared_ptr<const Grammar> GrammarBuilder::Finish(int32_t root, bool has_markup) {
  std::shared_ptr<Grammar> g(new Grammar);
  g->rules_ = rules_;
  g->root_ = root;
  g->has_markup_ = has_markup;
  for (const std::vector<Edge>& edges : nodes_) {
    g->first_edge_.push_back(static_cast<int32_t>(g->edges_.size()));
    g->edges_.insert(g->edges_.end(), edges.begin(), edges.end());
  }
  g->first_edge_.push_back(static_cast<int32_t>(g->edges_.size()));
  g->is_end_.resize(nodes_.size());
  for (const Grammar::Rule& rule : rules_) g->is_end_[static_cast<size_t>(rule.end)] = true;
  g->only_returns_ = g->is_end_;
  for (size_t first = 0; first < nodes_.size(); ++first) {
    size_t node = first;
    while (nodes_[node].size() == 1 && nodes_[node][0].kind == EdgeKind::kEmpty &&
           static_cast<size_t>(nodes_[node][0].target) != first)
      node = static_cast<size_t>(nodes_[node][0].target);
    g->only_returns_[first] = g->is_end_[node];
  }
  g->nesting_ = ComputeNesting(*g);
  if (g->Nesting(rules_[static_cast<size_t>(root)].start) > Grammar::kMaxNesting)
    throw Error(Code::kInvalid, "grammar: expected something that a text can match, found nothing");
  return g;
}

}  // namespace deepinfer
