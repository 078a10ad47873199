#include "kv/step_inputs.h"

namespace deepinfer {

namespace {

template <class T>
Buf Book(ArenaPlan* plan, int64_t count) {
  return plan->Book("step inputs", count * static_cast<int64_t>(sizeof(T)));
}

}  // namespace

void BatchNumbers::Add(int64_t rows, int64_t samples, bool own) {
  if (own) {
    for (int32_t i = 0; i < rows; ++i) in_->world_rows[row_++] = in_->n_world_rows + i;
    for (int32_t i = 0; i < samples; ++i) in_->world_samples[sample_++] = in_->n_world_samples + i;
  }
  in_->n_world_rows += static_cast<int32_t>(rows);
  in_->n_world_samples += static_cast<int32_t>(samples);
}

StepBlock::StepBlock(int64_t max_rows, int64_t max_seqs, int64_t max_blocks_per_seq,
                     int64_t engram_rows_per_token)
    : max_rows_(max_rows) {
  ArenaPlan plan;
  plan.Book("step inputs", sizeof(StepInputs));
  const Buf i32 = Book<int32_t>(&plan, max_rows * (9 + kMaxRatio + 1));
  const Buf i64 = Book<int64_t>(&plan, max_rows * (2 + kMaxRatio + 1 + engram_rows_per_token));
  const Buf dead = Book<uint8_t>(&plan, max_rows);
  const Buf table = Book<int32_t>(&plan, max_seqs * max_blocks_per_seq);
  arena_ = Arena("step inputs", plan.peak_bytes());

  StepInputs* in = inputs();
  int32_t* next32 = arena_.At<int32_t>(i32);
  int64_t* next64 = arena_.At<int64_t>(i64);
  for (int32_t** p : {&in->ids, &in->positions, &in->window_ends, &in->row_seqs, &in->row_slots,
                      &in->sample_rows, &in->world_rows, &in->world_samples, &in->all_rows}) {
    *p = next32, next32 += max_rows;
  }
  for (int64_t** p : {&in->window_slots, &in->raw_slots}) *p = next64, next64 += max_rows;
  for (int ratio = 0; ratio <= kMaxRatio; ++ratio) {
    in->group_rows[ratio] = next32, next32 += max_rows;
    in->group_slots[ratio] = next64, next64 += max_rows;
  }
  in->engram_rows = next64;
  in->dead = arena_.At<uint8_t>(dead);
  in->block_table = arena_.At<int32_t>(table);
  in->table_stride = max_blocks_per_seq;
  in->max_rows = max_rows;
  in->one = 1;
  for (int64_t r = 0; r < max_rows; ++r) in->all_rows[r] = static_cast<int32_t>(r);
}

}  // namespace deepinfer
