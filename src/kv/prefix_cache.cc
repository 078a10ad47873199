#include "kv/prefix_cache.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer {
namespace {

std::span<const TokenId> Page(std::span<const TokenId> tokens, int64_t page) {
  return tokens.subspan(static_cast<size_t>(page * kBlockTokens), kBlockTokens);
}

}  // namespace

PrefixCache::PrefixCache(KvPool* kv, int64_t snapshot_bytes)
    : kv_(*kv), max_snapshots_(snapshot_bytes / kv->ring_bytes()) {}

PrefixCache::~PrefixCache() {
  while (!by_use_.empty()) DropSnapshot(by_use_.begin()->second);
}

PrefixCache::Key PrefixCache::KeyOf(NodeId parent, std::span<const TokenId> page) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a over whole ids
  for (const TokenId id : page) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001B3;
  return {parent, hash ^ hash >> 32};
}

PrefixCache::NodeId PrefixCache::Find(NodeId parent, std::span<const TokenId> page) const {
  const auto found = children_.find(KeyOf(parent, page));
  if (found == children_.end()) return kNone;
  return std::ranges::equal(nodes_[static_cast<size_t>(found->second)].page, page) ? found->second
                                                                                   : kNone;
}

PrefixCache::Hit PrefixCache::Match(std::span<const TokenId> tokens) const {
  const int64_t n_pages = (std::ssize(tokens) - 1) / kBlockTokens;
  Hit hit;
  NodeId id = kRoot;
  int64_t n_idle = 0;
  for (int64_t p = 0; p < n_pages && (id = Find(id, Page(tokens, p))) != kNone; ++p) {
    const Node& node = nodes_[static_cast<size_t>(id)];
    hit.known = (p + 1) * kBlockTokens;
    n_idle += kv_.in_use(node.block) ? 0 : 1;
    if (node.snapshot == nullptr) continue;
    hit.tokens = hit.known;
    hit.n_idle = n_idle;
    hit.node = id;
  }
  return hit;
}

void PrefixCache::Adopt(SeqSlot slot, const Hit& hit) {
  std::vector<int32_t> blocks;
  for (NodeId id = hit.node; id != kRoot; id = nodes_[static_cast<size_t>(id)].parent)
    blocks.push_back(nodes_[static_cast<size_t>(id)].block);
  std::ranges::reverse(blocks);
  kv_.Adopt(slot, blocks);
}

void PrefixCache::Load(SeqSlot slot, const Hit& hit) {
  if (hit.node == kRoot) return;
  kv_.LoadRings(slot, hit.tokens, nodes_[static_cast<size_t>(hit.node)].snapshot.get());
  Touch(hit.node);
}

void PrefixCache::Publish(SeqSlot slot, std::span<const TokenId> tokens, int64_t end) {
  DI_CHECK(end % kBlockTokens == 0 && end <= kv_.length(slot)) << "slot " << slot << " end " << end;
  if (end == 0 || max_snapshots_ == 0 || !kv_.CanRollBack(slot, end)) return;
  const std::span<const int32_t> blocks = kv_.blocks(slot);
  NodeId id = kRoot;
  for (int64_t p = 0; p < end / kBlockTokens; ++p) {
    NodeId next = Find(id, Page(tokens, p));
    if (next == kNone) next = Add(id, Page(tokens, p), blocks[static_cast<size_t>(p)]);
    id = next;
  }
  Node& node = nodes_[static_cast<size_t>(id)];
  if (node.snapshot == nullptr) {
    ++n_published_;
    node.snapshot =
        std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(kv_.ring_bytes()));
    kv_.SaveRings(slot, end, node.snapshot.get());
  }
  Touch(id);
  while (n_snapshots() > max_snapshots_) DropSnapshot(by_use_.begin()->second);
}

PrefixCache::NodeId PrefixCache::Add(NodeId parent, std::span<const TokenId> page, int32_t block) {
  NodeId id = static_cast<NodeId>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    id = unused_.back();
    unused_.pop_back();
  }
  // Of two pages with the same hash the newer one is found from now on.
  children_.insert_or_assign(KeyOf(parent, page), id);
  nodes_[static_cast<size_t>(id)] = {parent, {page.begin(), page.end()}, block};
  if (parent != kRoot) ++nodes_[static_cast<size_t>(parent)].n_children;
  kv_.SetCached(block, true);
  return id;
}

void PrefixCache::Touch(NodeId id) {
  Node& node = nodes_[static_cast<size_t>(id)];
  by_use_.erase({node.last_use, id});
  node.last_use = ++now_;
  by_use_.insert({node.last_use, id});
}

// Forgets a snapshot, and the pages that lead nowhere any more.
void PrefixCache::DropSnapshot(NodeId id) {
  by_use_.erase({nodes_[static_cast<size_t>(id)].last_use, id});
  nodes_[static_cast<size_t>(id)].snapshot.reset();
  while (id != kRoot) {
    Node& node = nodes_[static_cast<size_t>(id)];
    if (node.n_children > 0 || node.snapshot != nullptr) return;
    const auto entry = children_.find(KeyOf(node.parent, node.page));
    if (entry != children_.end() && entry->second == id) children_.erase(entry);
    kv_.SetCached(node.block, false);
    unused_.push_back(id);
    id = node.parent;
    if (id != kRoot) --nodes_[static_cast<size_t>(id)].n_children;
  }
}

bool PrefixCache::Evict() {
  const int64_t free = kv_.free_blocks();
  for (const bool unused_leaf : {true, false}) {
    for (auto next = by_use_.begin(); next != by_use_.end() && kv_.free_blocks() == free;) {
      const NodeId id = (next++)->second;
      const Node& node = nodes_[static_cast<size_t>(id)];
      if (node.n_children > 0) continue;
      if (unused_leaf ? kv_.in_use(node.block) : !HasIdleBlock(id)) continue;
      DropSnapshot(id);
      if (!unused_leaf) next = by_use_.begin();  // pages above it may be leaves now
    }
  }
  return kv_.free_blocks() > free;
}

// On the way to the root.
bool PrefixCache::HasIdleBlock(NodeId id) const {
  while (id != kRoot && kv_.in_use(nodes_[static_cast<size_t>(id)].block))
    id = nodes_[static_cast<size_t>(id)].parent;
  return id != kRoot;
}

}  // namespace deepinfer
