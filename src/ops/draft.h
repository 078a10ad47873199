// Draft stages (spec 05): the taps of the backbone and the choice of the draft tokens.
#pragma once

#include "ops/op.h"

namespace deepinfer {

// y[r] = mean over streams of streams[r], summed in fp32, rounded to bf16 if `round` (spec 05
// section 2). Rows of y lie y_stride apart: one tap beside the other. Threads share columns.
struct TapArgs {
  const int32_t* n_rows;
  const float* streams;  // [rows, S, hidden]
  float* y;
  int64_t y_stride;
  int32_t n_streams, hidden;
  bool round;
};

// What slot `slot` of every block is extended with, once its token before is known (spec 05 section
// 4.1): y[s * block + slot] = (x[s * block + slot], embed[previous[s]]), the input of the
// confidence head; its second part is that of the transition head.
struct TransitionInputArgs {
  const int32_t* n_seqs;
  const float* x;           // [n_seqs * block, hidden]
  const int32_t* previous;  // [n_seqs] token ids
  WeightView embed;         // bf16 [vocabulary, rank]
  float* y;                 // [n_seqs * block, hidden + rank]
  int32_t block, slot, hidden;
};

// How a sequence draws its drafts. Arrays of one value a sequence.
struct DraftSampling {
  float* temperature;  // 0: the largest logit
  uint64_t* seed;
  uint32_t* sample;
  uint32_t* stream;  // sampler/philox.h
};

// The best token that a thread has seen of one row.
struct DraftCandidate {
  double value;
  int32_t id;  // -1: none
};

// Slot `slot` of every block draws its token: logits[row] += bias[s], then the largest logit, or at
// a temperature the largest logit / temperature + Gumbel noise of (seed, sample, position of the
// token, stream); lowest id among equals, NaN never, 0 when there is nothing else. Two phases with
// the same arguments: draft_choose leaves one candidate a thread, draft_merge (thread 0) writes
// tokens.
struct DraftTokenArgs {
  const int32_t* n_seqs;
  float* logits;             // [n_seqs * block, vocab]
  const float* bias;         // [n_seqs, vocab] transition logits
  const int32_t* positions;  // [n_seqs * block] of the rows; a row's token stands one further
  DraftSampling sampling;
  DraftCandidate* candidates;  // [n_seqs, threads]
  int32_t* previous;           // [n_seqs] the token, for the next slot
  int32_t* tokens;             // [n_seqs, block]
  int32_t block, slot, vocab;
};

}  // namespace deepinfer
