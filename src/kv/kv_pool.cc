#include "kv/kv_pool.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace deepinfer {

int64_t KvShape::BlockBytes() const {
  int64_t bytes = 0;
  for (const Owner& o : owners)
    bytes += kBlockTokens / o.ratio * (compressed_row_bytes + index_row_bytes);
  return bytes;
}

KvPool::KvPool(const KvShape& shape, int max_seqs, int64_t n_blocks, int64_t max_model_len)
    : shape_(shape),
      n_blocks_(n_blocks),
      max_blocks_per_seq_(BlocksFor(max_model_len)),
      seqs_(static_cast<size_t>(max_seqs)),
      block_uses_(static_cast<size_t>(n_blocks)) {
  ArenaPlan plan;
  window_ =
      plan.Book("kv.window", shape.n_layers * max_seqs * shape.ring() * shape.window_row_bytes);
  for (const KvShape::Owner& o : shape.owners) {
    const int64_t rows = n_blocks * (kBlockTokens / o.ratio);
    compressed_.push_back(plan.Book("kv.compressed", rows * shape.compressed_row_bytes));
    index_.push_back(plan.Book("kv.index", rows * shape.index_row_bytes));
    const int64_t raw_bytes = o.ratio > 1 ? max_seqs * shape.raw_ring() * shape.raw_cols * 4 : 0;
    raw_kv_.push_back(plan.Book("kv.open_group", raw_bytes));
    raw_score_.push_back(plan.Book("kv.open_group", raw_bytes));
  }
  arena_ = Arena("KV caches (see --num-kv-blocks and --max-num-seqs)", plan.peak_bytes());
  for (SeqSlot s = max_seqs - 1; s >= 0; --s) free_slots_.push_back(s);
  ring_bytes_ = shape.n_layers * shape.window * shape.window_row_bytes;
  for (const KvShape::Owner& o : shape.owners)
    ring_bytes_ += o.ratio > 1 ? 2 * kMaxRatio * shape.raw_cols * 4 : 0;
}

SeqSlot KvPool::Open() {
  if (free_slots_.empty()) return -1;
  std::vector<int> n_open(static_cast<size_t>(shape_.n_batches));
  const auto in_batch = [&](SeqSlot slot) -> int& {
    return n_open[static_cast<size_t>(batch(slot))];
  };
  for (SeqSlot s = 0; s < max_seqs(); ++s) in_batch(s) += seqs_[static_cast<size_t>(s)].open;
  const auto best =
      std::min_element(free_slots_.rbegin(), free_slots_.rend(),
                       [&](SeqSlot a, SeqSlot b) { return in_batch(a) < in_batch(b); });
  const SeqSlot slot = *best;
  free_slots_.erase(best.base() - 1);
  Seq& seq = seqs_[static_cast<size_t>(slot)];
  seq.open = true;
  return slot;
}

void KvPool::Close(SeqSlot slot) {
  Seq& seq = seqs_[static_cast<size_t>(slot)];
  DI_CHECK(seq.open) << "slot " << slot;
  for (auto block = seq.blocks.rbegin(); block != seq.blocks.rend(); ++block) UseBlock(*block, -1);
  seq = Seq{};
  free_slots_.push_back(slot);
}

bool KvPool::Reserve(SeqSlot slot, int64_t tokens) {
  Seq& seq = seqs_[static_cast<size_t>(slot)];
  const int64_t wanted = BlocksFor(tokens) - static_cast<int64_t>(seq.blocks.size());
  DI_CHECK(seq.open && tokens <= max_blocks_per_seq_ * kBlockTokens)
      << "slot " << slot << " tokens " << tokens;
  if (wanted > free_blocks()) return false;
  for (int64_t i = 0; i < wanted; ++i) seq.blocks.push_back(TakeBlock());
  return true;
}

int32_t KvPool::TakeBlock() {
  int32_t block;
  if (returned_blocks_.empty()) {
    block = static_cast<int32_t>(first_unused_block_++);
  } else {
    block = returned_blocks_.back();
    returned_blocks_.pop_back();
  }
  block_uses_[static_cast<size_t>(block)].n_seqs = 1;
  return block;
}

void KvPool::UseBlock(int32_t block, int32_t change) {
  BlockUse& use = block_uses_[static_cast<size_t>(block)];
  if (use.cached) n_idle_cached_ -= use.n_seqs == 0;
  use.n_seqs += change;
  DI_CHECK(use.n_seqs >= 0) << "block " << block;
  if (use.cached) n_idle_cached_ += use.n_seqs == 0;
  if (use.n_seqs == 0 && !use.cached) returned_blocks_.push_back(block);
}

void KvPool::Adopt(SeqSlot slot, std::span<const int32_t> blocks) {
  Seq& seq = seqs_[static_cast<size_t>(slot)];
  DI_CHECK(seq.open && seq.blocks.empty()) << "slot " << slot;
  seq.blocks.assign(blocks.begin(), blocks.end());
  for (const int32_t block : blocks) UseBlock(block, 1);
}

void KvPool::SetCached(int32_t block, bool cached) {
  BlockUse& use = block_uses_[static_cast<size_t>(block)];
  DI_CHECK(use.cached != cached) << "block " << block;
  use.cached = cached;
  if (use.n_seqs > 0) return;
  n_idle_cached_ += cached ? 1 : -1;
  if (!cached) returned_blocks_.push_back(block);
}

template <class Copy>
void KvPool::ForEachRing(SeqSlot slot, int64_t tokens, const Copy& copy) const {
  int64_t done = 0;
  // The last `most` rows in front of position `tokens` of a slot's ring.
  const auto rows = [&](uint8_t* base, int64_t ring, int64_t row_bytes, int64_t most) {
    base += slot * ring * row_bytes;
    for (int64_t p = std::max<int64_t>(0, tokens - most); p < tokens;) {
      const int64_t n = std::min(tokens - p, ring - p % ring);
      copy(base + p % ring * row_bytes, done, n * row_bytes);
      done += n * row_bytes;
      p += n;
    }
  };
  for (int64_t layer = 0; layer < shape_.n_layers; ++layer)
    rows(window_rows(layer), shape_.ring(), shape_.window_row_bytes, shape_.window);
  for (const KvShape::Owner& o : shape_.owners) {
    if (o.ratio == 1) continue;
    for (float* raw : {raw_kv(o.layer), raw_score(o.layer)}) {
      rows(reinterpret_cast<uint8_t*>(raw), shape_.raw_ring(), shape_.raw_cols * 4, kMaxRatio);
    }
  }
}

void KvPool::SaveRings(SeqSlot slot, int64_t tokens, std::byte* to) const {
  DI_CHECK(CanRollBack(slot, tokens)) << "slot " << slot << " tokens " << tokens;
  ForEachRing(slot, tokens, [to](const uint8_t* row, int64_t at, int64_t bytes) {
    std::memcpy(to + at, row, static_cast<size_t>(bytes));
  });
}

void KvPool::PutRings(SeqSlot slot, int64_t tokens, const std::byte* from) {
  ForEachRing(slot, tokens, [from](uint8_t* row, int64_t at, int64_t bytes) {
    std::memcpy(row, from + at, static_cast<size_t>(bytes));
  });
}

void KvPool::LoadRings(SeqSlot slot, int64_t tokens, const std::byte* from) {
  PutRings(slot, tokens, from);
  SetLength(slot, tokens);
  seqs_[static_cast<size_t>(slot)].loaded = tokens;
}

void KvPool::SetLength(SeqSlot slot, int64_t tokens) {
  Seq& seq = seqs_[static_cast<size_t>(slot)];
  DI_CHECK(seq.open && tokens >= 0 &&
           tokens <= static_cast<int64_t>(seq.blocks.size()) * kBlockTokens)
      << "slot " << slot << " tokens " << tokens;
  seq.written = std::max(seq.written, tokens);
  DI_CHECK(CanRollBack(slot, tokens)) << "rollback by " << seq.written - tokens << " tokens";
  seq.length = tokens;
}

namespace {

void StartStep(int64_t n_seqs, StepInputs* in) {
  in->n_rows = in->n_samples = 0;
  in->n_seqs = static_cast<int32_t>(n_seqs);
  std::fill(in->n_groups, in->n_groups + kMaxRatio + 1, 0);
}

}  // namespace

int32_t KvPool::AddRow(SeqSlot slot, int32_t step_seq, TokenId id, int64_t position,
                       int64_t window_end, StepInputs* in) const {
  const int32_t r = in->n_rows++;
  in->ids[r] = id;
  in->positions[r] = static_cast<int32_t>(position);
  in->window_ends[r] = static_cast<int32_t>(window_end);
  in->row_seqs[r] = step_seq;
  in->row_slots[r] = slot;
  in->window_slots[r] = slot * shape_.ring() + position % shape_.ring();
  return r;
}

void KvPool::FillDraft(std::span<const DraftRows> seqs, int64_t block, TokenId noise,
                       StepInputs* in) const {
  DI_CHECK(block <= shape_.draft_rows) << block << " rows, room for " << shape_.draft_rows;
  StartStep(std::ssize(seqs), in);
  for (int32_t s = 0; s < in->n_seqs; ++s) {
    const DraftRows& rows = seqs[static_cast<size_t>(s)];
    const int64_t first = length(rows.slot);
    for (int64_t i = 0; i < block; ++i) {
      AddRow(rows.slot, s, i == 0 ? rows.anchor : noise, first + i, first + block - 1, in);
    }
  }
  in->all_rows_begin[1] = in->n_rows;
}

void KvPool::FillRow(const Seq& seq, SeqSlot slot, int32_t step_seq, TokenId id, int64_t position,
                     StepInputs* in) const {
  const int32_t r = AddRow(slot, step_seq, id, position, position, in);
  in->raw_slots[r] = slot * shape_.raw_ring() + position % shape_.raw_ring();
  for (int ratio = 1; ratio <= kMaxRatio; ++ratio) {
    if ((position + 1) % ratio != 0) continue;
    const int64_t per_page = kBlockTokens / ratio, j = position / ratio;
    const int32_t g = in->n_groups[ratio]++;
    in->group_rows[ratio][g] = r;
    in->group_slots[ratio][g] =
        seq.blocks[static_cast<size_t>(j / per_page)] * per_page + j % per_page;
  }
}

void KvPool::FillInputs(std::span<const SeqRows> seqs, StepInputs* in) const {
  StartStep(std::ssize(seqs), in);
  for (int32_t s = 0; s < in->n_seqs; ++s) {
    const SeqRows& rows = seqs[static_cast<size_t>(s)];
    const Seq& seq = seqs_[static_cast<size_t>(rows.slot)];
    const int64_t end = static_cast<int64_t>(rows.tokens.size());
    DI_CHECK(seq.open && rows.first == seq.length &&
             end <= static_cast<int64_t>(seq.blocks.size()) * kBlockTokens)
        << "slot " << rows.slot << " length " << seq.length << " rows " << rows.first << " to "
        << end;
    DI_CHECK(end - rows.first <= shape_.max_step_rows) << end - rows.first << " rows";
    for (int64_t p = rows.first; p < end; ++p) {
      FillRow(seq, rows.slot, s, rows.tokens[static_cast<size_t>(p)], p, in);
    }
    const int64_t n_logits = std::min(rows.n_logits, end - rows.first);
    for (int64_t i = n_logits; i > 0; --i)
      in->sample_rows[in->n_samples++] = in->n_rows - static_cast<int32_t>(i);
    std::copy(seq.blocks.begin(), seq.blocks.end(), in->block_table + s * in->table_stride);
  }
  in->all_rows_begin[1] = in->n_rows;
}

size_t KvPool::OwnerIndex(int layer) const {
  size_t i = 0;
  while (i < shape_.owners.size() && shape_.owners[i].layer != layer) ++i;
  DI_CHECK(i < shape_.owners.size()) << "layer " << layer << " has no compressed cache";
  return i;
}

uint8_t* KvPool::window_rows(int64_t layer) const {
  return arena_.At<uint8_t>(window_) + layer * max_seqs() * shape_.ring() * shape_.window_row_bytes;
}

uint8_t* KvPool::compressed_rows(int layer) const {
  return arena_.At<uint8_t>(compressed_[OwnerIndex(layer)]);
}
uint8_t* KvPool::index_rows(int layer) const {
  return arena_.At<uint8_t>(index_[OwnerIndex(layer)]);
}
float* KvPool::raw_kv(int layer) const { return arena_.At<float>(raw_kv_[OwnerIndex(layer)]); }
float* KvPool::raw_score(int layer) const {
  return arena_.At<float>(raw_score_[OwnerIndex(layer)]);
}

}  // namespace deepinfer
