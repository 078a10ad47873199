// PrefixCache: caches of sequences that others can go on from (automatic prefix caching).
//
// A tree of pages: a node stands for a sequence of whole pages of kBlockTokens tokens and owns the
// block of the last one. Some nodes also have a snapshot: the rings of a slot as they were at the
// end of that page, window rows of all layers and draft stages, and raw rows of open groups. A
// sequence can go on from a node with a snapshot; the blocks are shared, the rings copied. What the
// Engram looks back at comes from the token list. A sequence that goes on from a node computes the
// same bits as one that computes everything.
//
// Every leaf has a snapshot. What was longest unused goes first: snapshots when their memory is
// full, leaves with their blocks when a sequence needs blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/types.h"
#include "kv/kv_pool.h"

namespace deepinfer {

class PrefixCache {
  static constexpr int32_t kRoot = -1, kNone = -2;

 public:
  // snapshot_bytes: most memory of all snapshots. Less than one takes: nothing is ever remembered.
  // The pool outlives the cache.
  PrefixCache(KvPool* kv, int64_t snapshot_bytes);
  ~PrefixCache();  // its blocks are free again
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  using NodeId = int32_t;
  struct Hit {
    int64_t tokens = 0;  // that a slot can go on from
    int64_t known = 0;   // tokens of whole pages in the tree: a snapshot there would be of use
    int64_t n_idle = 0;  // blocks of `tokens` that no sequence uses
    NodeId node = kRoot;
  };
  // The longest known prefix of `tokens` without the last one: somebody wants its logits.
  Hit Match(std::span<const TokenId> tokens) const;
  // Gives an open, empty slot the blocks of a hit, and then what the rings held and its length.
  // Nothing may be published in between.
  void Adopt(SeqSlot slot, const Hit& hit);
  void Load(SeqSlot slot, const Hit& hit);

  // Remembers the caches of a slot up to `end`, a whole number of pages, not beyond its length.
  // `tokens` are those of the sequence. Does nothing when the rings no longer hold that state.
  void Publish(SeqSlot slot, std::span<const TokenId> tokens, int64_t end);

  // Forgets something that holds blocks, so that at least one becomes free. false: no idle block is
  // left. Pages that a sequence uses are forgotten only when idle ones lie in front of them: two
  // sequences may have computed the same tokens.
  bool Evict();

  // Grows whenever Match may find more than before.
  int64_t n_published() const { return n_published_; }

  int64_t n_snapshots() const { return std::ssize(by_use_); }
  int64_t n_pages() const { return std::ssize(nodes_) - std::ssize(unused_); }

 private:
  struct Node {
    NodeId parent;
    std::vector<TokenId> page;
    int32_t block;
    int n_children = 0;
    uint64_t last_use = 0;                       // of the snapshot
    std::unique_ptr<std::byte[]> snapshot = {};  // kv_.ring_bytes()
  };
  struct Key {
    NodeId parent;
    uint64_t hash;  // of the page
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return key.hash ^ (static_cast<uint64_t>(key.parent) * 0x9E3779B97F4A7C15);
    }
  };
  static Key KeyOf(NodeId parent, std::span<const TokenId> page);
  NodeId Find(NodeId parent, std::span<const TokenId> page) const;
  NodeId Add(NodeId parent, std::span<const TokenId> page, int32_t block);
  void Touch(NodeId id);
  void DropSnapshot(NodeId id);
  bool HasIdleBlock(NodeId id) const;

  KvPool& kv_;
  int64_t max_snapshots_;
  std::vector<Node> nodes_;
  std::vector<NodeId> unused_;
  std::unordered_map<Key, NodeId, KeyHash> children_;
  std::set<std::pair<uint64_t, NodeId>> by_use_;  // nodes with a snapshot, longest unused first
  uint64_t now_ = 0;
  int64_t n_published_ = 0;
};

}  // namespace deepinfer
