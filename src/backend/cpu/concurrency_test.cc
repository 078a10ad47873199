// Kernels on real threads, beside a thread that keeps other kernels busy: 12,000 repeats, every
// result bit for bit that of one thread alone. Under ThreadSanitizer this also shows that parts of
// an op write nothing in common.
#include <atomic>
#include <thread>

#include "backend/cpu/kernel_test.h"
#include "base/team.h"

namespace deepinfer {
namespace {

using Floats = std::vector<float>;

constexpr int kThreads = 2;
constexpr int32_t kRows = 3, kHeads = 5, kDim = 64, kStreams = 4, kWindow = 40, kKeys = 300;

template <class Args>
void RunOnTeam(Team* team, KernelOf<Args> kernel, const Args& args) {
  struct Call {
    KernelOf<Args> kernel;
    const Args* args;
    int n;
  } call = {kernel, &args, team->size()};
  team->Run(
      [](void* context, int tid) {
        const Call& c = *static_cast<Call*>(context);
        c.kernel(*c.args, Work{tid, c.n});
      },
      &call);
}

// A small step: its inputs, which never change, and what the ops produce from them.
struct Step {
  // inputs
  int32_t one_row = 1;
  int32_t rows = kRows;
  std::vector<int32_t> positions = {kWindow + 3, 1, kWindow}, zeros = {0, 0, 0};
  int32_t last_key = kKeys - 1, page = 0;
  std::vector<int64_t> slots = {2, 0, 1};
  Floats x, streams, post, comb, q, index_weights, sink;
  std::vector<uint8_t> window_rows, keys;
  // results
  Floats quantised, updated, attended;
  std::vector<uint8_t> cache;
  std::vector<int32_t> selected = std::vector<int32_t>(20), n_selected = {0};
  // work space of kThreads threads
  std::vector<float> scratch;
  int64_t scratch_floats = 0;

  explicit Step(uint32_t seed) {
    Random random(seed);
    x = random.Normals(kRows * kHeads * kDim);
    streams = random.Normals(kRows * kStreams * kDim);
    post = random.Normals(kRows * kStreams);
    comb = random.Normals(kRows * kStreams * kStreams);
    q = random.Bf16s(kRows * kHeads * kDim);
    index_weights = random.Normals(kHeads);
    sink = random.Normals(kHeads);
    window_rows.resize(static_cast<size_t>(RowBytes(RowFormat::kFp8Block32, kDim) * 2 * kWindow));
    for (uint8_t& b : window_rows) b = static_cast<uint8_t>(random.Int(0x70, 0x7e));
    keys.resize(static_cast<size_t>(RowBytes(RowFormat::kFp4Block32, kDim) * kKeys));
    for (uint8_t& b : keys) b = static_cast<uint8_t>(random.Int(0x70, 0x8f));
    quantised.resize(x.size());
    attended.resize(q.size());
    cache.resize(static_cast<size_t>(RowBytes(RowFormat::kFp4Block16, kHeads * kDim) * kRows));
    scratch_floats =
        std::max(AttentionScratchFloats(kDim), IndexSelectScratchBytes(kHeads, kDim, 20, 0) / 4);
    scratch_floats = (scratch_floats + 15) / 16 * 16;
    scratch.resize(static_cast<size_t>(scratch_floats * kThreads) + 16);
  }

  float* AlignedScratch() {
    const uintptr_t at = reinterpret_cast<uintptr_t>(scratch.data());
    return scratch.data() + (64 - at % 64) % 64 / 4;
  }

  AttentionArgs Attention() {
    AttentionArgs a = {};
    a.n_rows = &rows;
    a.q = q.data(), a.o = attended.data();
    a.positions = positions.data(), a.row_seqs = zeros.data(), a.row_slots = zeros.data();
    a.window_rows = window_rows.data(), a.window_format = RowFormat::kFp8Block32;
    a.ring = 2 * kWindow, a.window = kWindow;
    a.sink = reinterpret_cast<const uint8_t*>(sink.data());
    a.heads = kHeads, a.head_dim = kDim, a.scale = 0.125f;
    a.round_p = a.round = true;
    a.scratch = AlignedScratch(), a.scratch_stride = scratch_floats;
    return a;
  }

  IndexSelectArgs Select() {
    IndexSelectArgs a = {};
    a.n_rows = &one_row;
    a.q = q.data(), a.weights = index_weights.data();
    a.positions = &last_key, a.row_seqs = zeros.data();
    a.keys = {keys.data(), &page, 1, kKeys, RowFormat::kFp4Block32};
    a.heads = kHeads, a.dim = kDim, a.topk = 20, a.ratio = 1, a.weight_scale = 1;
    a.round = a.round_scores = true;
    a.selected = selected.data(), a.n_selected = n_selected.data();
    a.scratch = reinterpret_cast<uint8_t*>(AlignedScratch());
    a.scratch_stride = scratch_floats * 4;
    return a;
  }

  void Run(const KernelTable& k, Team* team) {
    constexpr int32_t kCols = kHeads * kDim;
    updated = streams;
    RunOnTeam(team, k.quant_rows,
              QuantRowsArgs{&rows, x.data(), quantised.data(), kCols, RowFormat::kFp8Block32, 448});
    RunOnTeam(team, k.store_rows,
              StoreRowsArgs{&rows, x.data(), slots.data(), cache.data(), kCols,
                            RowFormat::kFp4Block16, 448});
    RunOnTeam(team, k.expand,
              ExpandArgs{&rows, x.data(), post.data(), comb.data(), updated.data(), kStreams, kDim,
                         true});
    RunOnTeam(team, k.attention, Attention());
    RunOnTeam(team, k.index_select, Select());
    RunOnTeam(team, k.index_merge, Select());
  }

  bool SameResults(const Step& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(quantised, other.quantised) && same(cache, other.cache) &&
           same(updated, other.updated) && same(attended, other.attended) &&
           same(selected, other.selected) && n_selected == other.n_selected;
  }
};

TEST(Kernels, RepeatBesideABusyThread) {
  const std::vector<const KernelTable*> tables = VectorTables();
  for (const KernelTable* table : tables) {
    Team alone(1), team(kThreads);
    Step expected(kSeed), step(kSeed), other(kSeed + 1);
    expected.Run(*table, &alone);
    EXPECT_EQ(expected.n_selected[0], 20);
    std::atomic<bool> stop = false;
    std::thread busy([&] {
      Team own(1);
      while (!stop) other.Run(*table, &own);
    });
    int mismatches = 0;
    for (size_t i = 0; i < 12000 / tables.size(); ++i) {
      step.Run(*table, &team);
      mismatches += !step.SameResults(expected);
    }
    stop = true;
    busy.join();
    EXPECT_EQ(mismatches, 0) << table->isa;
  }
}

}  // namespace
}  // namespace deepinfer
