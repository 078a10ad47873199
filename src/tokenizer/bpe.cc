#include "tokenizer/bpe.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace deepinfer {
namespace {

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A symbol of the piece, linked to its neighbours; merging keeps the left one and unlinks the right
// one.
struct Symbol {
  TokenId id;  // -1: unlinked
  int32_t previous, next;
};

// A possible merge of the symbol at `position` with its successor. Entries are not removed when a
// neighbour changes; they are recognised as stale when popped.
struct Candidate {
  int32_t rank, position;
  bool operator<(const Candidate& other) const {  // std heaps keep the largest on top: reversed
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, std::vector<Merge> merges)
    : byte_ids_(byte_ids), merges_(std::move(merges)) {
  rank_of_pair_.reserve(merges_.size());
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const bool inserted =
        rank_of_pair_
            .emplace(PairKey(merges_[rank].left, merges_[rank].right), static_cast<int32_t>(rank))
            .second;
    DI_CHECK(inserted) << "merge " << rank << " repeats a pair";
  }
}

void Bpe::Encode(std::string_view piece, std::vector<TokenId>* out) const {
  const auto n = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (int32_t i = 0; i < n; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i - 1, i + 1 < n ? i + 1 : -1};
  }

  std::vector<Candidate> heap;
  const auto push = [&](int32_t position) {
    if (position < 0 || symbols[position].next < 0) return;
    const auto found =
        rank_of_pair_.find(PairKey(symbols[position].id, symbols[symbols[position].next].id));
    if (found == rank_of_pair_.end()) return;
    heap.push_back({found->second, position});
    std::push_heap(heap.begin(), heap.end());
  };
  for (int32_t i = 0; i < n; ++i) push(i);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[top.position];
    const Merge& merge = merges_[top.rank];
    if (left.id != merge.left || left.next < 0 || symbols[left.next].id != merge.right) continue;
    Symbol& right = symbols[left.next];
    left.id = merge.result;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = top.position;
    right.id = -1;
    push(left.previous);
    push(top.position);
  }
  for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = symbols[i].next) out->push_back(symbols[i].id);
}

}  // namespace deepinfer
