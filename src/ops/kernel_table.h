// One table of kernels per instruction set. A null entry means: use the next lower table.
#pragma once

#include "ops/attention.h"
#include "ops/draft.h"
#include "ops/embed.h"
#include "ops/engram.h"
#include "ops/hyper_connections.h"
#include "ops/linear.h"
#include "ops/logits.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/op.h"
#include "ops/rope.h"
#include "ops/rows.h"

namespace deepinfer {

struct KernelTable {
  const char* isa;
  KernelOf<EmbedArgs> embed;
  KernelOf<RmsNormArgs> rms_norm;
  KernelOf<AddArgs> add;
  KernelOf<QuantRowsArgs> quant_rows;
  KernelOf<StoreRowsArgs> store_rows;
  KernelOf<GatherRowsArgs> gather_rows;
  KernelOf<LinearArgs> linear;
  KernelOf<RopeTableArgs> rope_table;
  KernelOf<RopeArgs> rope;
  KernelOf<MixArgs> mix;
  KernelOf<CollapseArgs> collapse;
  KernelOf<ExpandArgs> expand;
  KernelOf<PoolArgs> pool;
  KernelOf<IndexSelectArgs> index_select;
  KernelOf<IndexSelectArgs> index_merge;
  KernelOf<AttentionArgs> attention;
  KernelOf<RouteArgs> route;
  KernelOf<GroupPairsArgs> group_pairs;
  KernelOf<CheckExpertsArgs> check_experts;
  KernelOf<GateUpArgs> gate_up;
  KernelOf<DownArgs> down;
  KernelOf<EngramGatherArgs> engram_gather;
  KernelOf<EngramGateArgs> engram_gate;
  KernelOf<TopLogitsArgs> top_logits;
  KernelOf<TapArgs> tap = nullptr;
  KernelOf<TransitionInputArgs> transition_input = nullptr;
  KernelOf<DraftTokenArgs> draft_choose = nullptr;
  KernelOf<DraftTokenArgs> draft_merge = nullptr;
};

// The scalar reference of every op, ops/ref/. Every entry is set.
const KernelTable& ReferenceKernels();

}  // namespace deepinfer
