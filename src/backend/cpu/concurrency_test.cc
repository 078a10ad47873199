// Kernels on real threads, beside a thread that keeps other kernels busy: 12,000 repeats, every
// result bit for bit that of one thread alone. Under ThreadSanitizer this also shows that parts of
// an op write nothing in common.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "backend/cpu/matrix_test_util.h"
#include "base/team.h"

namespace deepinfer {
namespace {

using Floats = std::vector<float>;

#ifdef __SANITIZE_THREAD__
constexpr size_t kRepeats = 600;  // it sees a race the first time
#else
constexpr size_t kRepeats = 12000;
#endif
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

// Products with every type of weight, and experts: 96 outputs, so both threads have some.
struct Products {
  static constexpr int32_t kCols = 128, kOut = 96, kExperts = 3, kTopk = 2;
  static constexpr int32_t kPairs = kRows * kTopk;
  // inputs, quantised: on the bf16 grid too
  int32_t rows = kRows;
  Floats x;
  std::vector<TestWeight> weights, experts;
  std::vector<ExpertWeights> views;
  std::vector<int32_t> ids = {0, 2, 2, 1, 0, 1};
  Floats routing = {0.5f, 0.25f, 1, 0.5f, 0.75f, 0.5f};
  // results
  std::vector<Floats> y;
  Floats act = Floats(kPairs * kOut), down = Floats(kRows * kCols);
  std::vector<int32_t> active = std::vector<int32_t>(kExperts), pair_rows = {0, 0, 0, 0, 0, 0};
  std::vector<int32_t> begin = std::vector<int32_t>(kExperts + 1), n_active = {0};
  Floats pair_weights = Floats(kPairs);

  explicit Products(Random* random) : x(Quantised(random->Normals(kRows * kCols), kCols)) {
    for (DType dtype :
         {DType::kFp8Tile32, DType::kFp8Row32, DType::kBf16, DType::kF32, DType::kFp4Row32})
      weights.push_back(RandomWeight(dtype, kOut, kCols, Values::kAny, random));
    y.resize(weights.size(), Floats(kRows * kOut));
    for (int e = 0; e < kExperts; ++e) {
      for (int part = 0; part < 3; ++part) {
        const bool w2 = part == 2;
        experts.push_back(RandomWeight(DType::kFp4Row32, w2 ? kCols : kOut, w2 ? kOut : kCols,
                                       Values::kAny, random));
      }
      const TestWeight* last = &experts.back();
      views.push_back({last[-2].view, last[-1].view, last[0].view});
    }
  }

  static int64_t ScratchFloats() { return ExpertScratchFloats(kCols); }

  void Run(const KernelTable& k, Team* team, float* scratch, int64_t stride) {
    const bool tiles = std::string(k.isa) == "amx";
    for (size_t i = 0; i < weights.size(); ++i) {
      LinearArgs a = {};
      a.n_rows = &rows, a.x = x.data(), a.x_stride = kCols, a.w = weights[i].view;
      a.y = y[i].data(), a.y_stride = kOut, a.bf16_inputs = tiles;
      a.scratch = scratch, a.scratch_stride = stride;
      RunOnTeam(team, k.linear, a);
    }
    const ExpertPairs pairs = {n_active.data(), active.data(), begin.data(), pair_rows.data(),
                               pair_weights.data()};
    RunOnTeam(team, k.group_pairs,
              GroupPairsArgs{&rows, ids.data(), routing.data(), kExperts, kTopk, pairs});
    RunOnTeam(team, k.gate_up,
              GateUpArgs{.pairs = pairs,
                         .experts = views.data(),
                         .x = x.data(),
                         .act = act.data(),
                         .hidden = kCols,
                         .inter = kOut,
                         .limit = 10,
                         .fp8_max = 448,
                         .decode = WeightDecode::kAsStored,
                         .round = true,
                         .bf16_inputs = tiles,
                         .fp8_inputs = true,
                         .scratch = scratch,
                         .scratch_stride = stride});
    RunOnTeam(team, k.down,
              DownArgs{.n_rows = &rows,
                       .pairs = pairs,
                       .experts = views.data(),
                       .act = act.data(),
                       .y = down.data(),
                       .hidden = kCols,
                       .inter = kOut,
                       .round = true,
                       .bf16_inputs = tiles,
                       .fp8_inputs = true,
                       .scratch = scratch,
                       .scratch_stride = stride});
  }
};

bool SameBytes(const auto& a, const auto& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
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
  Products products;

  explicit Step(uint32_t seed) : Step(Random(seed)) {}
  explicit Step(Random random) : products(&random) {
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
        std::max({AttentionScratchFloats(kDim), IndexSelectScratchBytes(kHeads, kDim, 20, 0) / 4,
                  Products::ScratchFloats()});
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
    products.Run(k, team, AlignedScratch(), scratch_floats);
  }

  bool SameResults(const Step& other) const {
    for (size_t i = 0; i < products.y.size(); ++i) {
      if (!SameBytes(products.y[i], other.products.y[i])) return false;
    }
    return SameBytes(products.act, other.products.act) &&
           SameBytes(products.down, other.products.down) && SameBytes(quantised, other.quantised) &&
           SameBytes(cache, other.cache) && SameBytes(updated, other.updated) &&
           SameBytes(attended, other.attended) && SameBytes(selected, other.selected) &&
           n_selected == other.n_selected;
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
    for (size_t i = 0; i < kRepeats / tables.size(); ++i) {
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
