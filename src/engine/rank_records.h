// RankRecords: what the driver of a world tells its followers before every step and draft
// (docs/ranks.md): the inputs, as bytes. Followers decide nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/step_inputs.h"
#include "parallel/comm.h"

namespace deepinfer {

class RankRecords {
 public:
  enum class Kind : uint32_t { kLoad, kStep, kProbedStep, kDraft, kRings, kPlant, kStop };

  // bytes: of the largest record, about; a larger one makes room for itself.
  RankRecords(Comm* world, int64_t bytes);

  // The driver: a record is begun, filled and sent.
  void Begin(Kind kind);
  void Put(const void* data, int64_t bytes);
  void Send();

  // A follower: waits for the next record, and takes it apart in the order in which it was filled.
  // Throws Error(kIo) when the world has failed, kCorrupt when a record is not the next one, was
  // damaged, or has another size than what is taken of it.
  Kind Receive();
  void Take(void* data, int64_t bytes);
  void SkipRest();  // what is left is for others
  void End();

 private:
  struct Header {
    uint64_t number;
    Kind kind;
    uint32_t crc;
    int64_t bytes;
  };

  // The first call of a record carries so many bytes, header included; a second one the rest.
  static constexpr int64_t kFirstBytes = 4096;

  void Exchange(int64_t begin, int64_t end);
  std::span<const std::byte> payload() const;

  Comm* world_;
  Header header_ = {};
  std::vector<std::byte> bytes_;  // header and payload
  int64_t taken_ = 0;
};

// Calls copy(pointer, bytes) for everything in `in` that kernels read, counts first. dims: Engram
// layers and columns.
struct EngramDims {
  int64_t layers, columns;
};
template <class Copy>
void ForEachInput(StepInputs* in, EngramDims dims, const Copy& copy) {
  const auto array = [&](auto* data, int64_t count) {
    copy(data, count * static_cast<int64_t>(sizeof *data));
  };
  array(&in->n_rows, 1), array(&in->n_seqs, 1), array(&in->n_samples, 1);
  array(&in->n_draft_rows, 1);
  array(in->n_groups, kMaxRatio + 1);
  array(&in->n_world_rows, 1), array(&in->n_world_samples, 1);
  array(in->all_rows_begin, 2);
  for (int32_t* p :
       {in->ids, in->positions, in->window_ends, in->row_seqs, in->row_slots, in->world_rows})
    array(p, in->n_rows);
  array(in->window_slots, in->n_rows), array(in->raw_slots, in->n_rows);
  array(in->dead, in->n_rows);
  for (int64_t l = 0; l < dims.layers; ++l)
    array(in->engram_rows + l * in->max_rows * dims.columns, in->n_rows * dims.columns);
  for (int ratio = 1; ratio <= kMaxRatio; ++ratio) {
    array(in->group_rows[ratio], in->n_groups[ratio]);
    array(in->group_slots[ratio], in->n_groups[ratio]);
  }
  array(in->sample_rows, in->n_samples), array(in->world_samples, in->n_samples);
  array(in->block_table, in->n_seqs * in->table_stride);
}

}  // namespace deepinfer
