// What ranks say to each other in real steps is what the plan without weights lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <utility>

#include "config/layout.h"
#include "engine/dry_plan.h"
#include "rank_runs.h"

namespace deepinfer {
namespace {

struct Call {
  std::string op;
  int ranks;
  int64_t bytes;  // that a rank puts in
  bool operator==(const Call&) const = default;
};
using Calls = std::vector<Call>;

void PrintTo(const Call& call, std::ostream* out) {
  *out << call.op << " of " << call.bytes << " bytes over " << call.ranks;
}

// What one rank calls on all communicators, broadcasts aside: they carry the driver's records.
struct Counted {
  Calls calls;
  int64_t n_broadcasts = 0;
};

class CountingComm : public Comm {
 public:
  CountingComm(std::unique_ptr<Comm> comm, Counted* counted)
      : Comm(comm->rank(), comm->size()), comm_(std::move(comm)), counted_(counted) {}

  std::unique_ptr<Comm> Split(int color, const std::string& name) override {
    return std::make_unique<CountingComm>(comm_->Split(color, name), counted_);
  }
  void SetDeadline(std::chrono::milliseconds deadline) override { comm_->SetDeadline(deadline); }
  void Abort(const std::string& why) override { comm_->Abort(why); }
  std::optional<std::string> failure() const override { return comm_->failure(); }

 private:
  void DoMerge(const CommCall& call, uint32_t* words, int64_t n) override {
    counted_->calls.push_back({call.name(), size(), n * 4});
    if (call.op == CommCall::Op::kMerge)
      comm_->Merge(words, n);
    else
      comm_->Sum(reinterpret_cast<float*>(words), n);
  }
  void DoGather(const CommCall& call, float* rows, int64_t n_rows, int64_t stride,
                std::span<const int64_t> cuts) override {
    const auto own = static_cast<size_t>(rank());
    counted_->calls.push_back({call.name(), size(), n_rows * (cuts[own + 1] - cuts[own]) * 4});
    comm_->Gather(rows, n_rows, stride, cuts);
  }
  void DoBroadcast(const CommCall& call, void* data, int64_t bytes) override {
    ++counted_->n_broadcasts;
    comm_->Broadcast(data, bytes, call.root);
  }

  const std::unique_ptr<Comm> comm_;
  Counted* const counted_;
};

constexpr int64_t kSteps[] = {1, 4, 24};  // rows of a step: as many as its plan has

// One sequence, so that one batch has all rows, and a draft. The calls of this rank.
int64_t RunSteps(Executor& e) {
  const SeqSlot slot = e.kv().Open();
  EXPECT_TRUE(e.kv().Reserve(slot, 64));
  e.TakeExchanges();
  Tokens text;
  for (const int64_t n : kSteps) {
    const int64_t first = std::ssize(text);
    for (int64_t i = 0; i < n; ++i) text.push_back(static_cast<TokenId>(3 + 7 * (first + i) % 500));
    const SeqRows rows[] = {{slot, text, first, n}};
    e.Step(rows);
    e.kv().SetLength(slot, std::ssize(text));
  }
  const DraftSeq seqs[] = {{slot, 5, 0, 1, 0, Stream::kDraft}};
  e.Draft(seqs);
  e.kv().Close(slot);
  return e.TakeExchanges().calls;
}

// Behind a step or draft all share the bad bytes they have met.
void AppendStep(const std::vector<Exchange>& exchanges, int ranks, Calls* calls) {
  for (const Exchange& e : exchanges) calls->push_back({e.op, e.ranks, e.bytes});
  calls->push_back({"gather", ranks, sizeof(Fault)});
}

Calls Planned(const ModelConfig& config, const World& world) {
  const Layout layout(config, world.options());
  Calls calls = {{"merge", world.ranks, 4}};  // all have loaded
  for (const int64_t n : kSteps) AppendStep(PlanExchanges(config, layout, n), world.ranks, &calls);
  AppendStep(PlanDraftExchanges(config, layout, 1), world.ranks, &calls);
  return calls;
}

// Call by call what any rank puts in at most.
Calls MostOf(const std::vector<Counted>& ranks) {
  Calls most = ranks[0].calls;
  for (const Counted& rank : ranks) {
    EXPECT_EQ(rank.calls.size(), most.size());
    for (size_t i = 0; i < std::min(most.size(), rank.calls.size()); ++i) {
      EXPECT_EQ(rank.calls[i].op, most[i].op) << i;
      EXPECT_EQ(rank.calls[i].ranks, most[i].ranks) << i;
      most[i].bytes = std::max(most[i].bytes, rank.calls[i].bytes);
    }
  }
  return most;
}

TEST(RankExchangesTest, StepsAndDraftsCallWhatThePlanLists) {
  const ExecutorOptions options = Options("tiny", "release", "auto");
  const ModelConfig config = ModelConfig::Load(options.engine.model + "/config.json");
  const std::vector<World> worlds = {{"tp8r", 16, 0, "rows-bf16", "fast"},
                                     {"ep", 2},
                                     {"tp", 4, 0, "rows-bf16"},
                                     {"tp", 8, 0, "rows-fp8"},
                                     {"tp8r", 16},
                                     {"dp", 2},
                                     {"tp", 4, 2},
                                     {"tp8r", 16, 8},
                                     {"ep", 2, 0, "host", "fast"},
                                     {"tp", 4, 0, "rows-bf16", "fast"},
                                     {"tp", 8, 0, "host", "fast"}};
  for (const World& world : SomeOf(worlds)) {
    SCOPED_TRACE(std::string(world.layout) + " on " + std::to_string(world.ranks) + " ranks, " +
                 world.reduce);
    std::vector<Counted> counted(static_cast<size_t>(world.ranks));
    Comms comms = MakeThreadWorld(world.ranks, std::chrono::seconds(60));
    for (size_t r = 0; r < comms.size(); ++r)
      comms[r] = std::make_unique<CountingComm>(std::move(comms[r]), &counted[r]);
    const auto n_calls = OnRanks<int64_t>(comms, options, world.options(), RunSteps);
    const Calls calls = MostOf(counted);
    EXPECT_THAT(calls, ::testing::ElementsAreArray(Planned(config, world)));
    // Each of the steps, and the draft, comes with one record or more; the merge was before them.
    EXPECT_GE(n_calls, std::ssize(calls) - 1 + std::ssize(kSteps) + 1);
    EXPECT_LE(n_calls, std::ssize(calls) - 1 + counted[0].n_broadcasts);
  }
}

}  // namespace
}  // namespace deepinfer
