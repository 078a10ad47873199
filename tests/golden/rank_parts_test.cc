// What a rank loads of a synthetic model of released widths: its part, with the values that one
// rank has.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "checkpoint/checkpoint.h"
#include "planner/rank_memory.h"
#include "rank_runs.h"

namespace deepinfer {
namespace {

ExecutorOptions SyntheticOptions() {
  ExecutorOptions o;
  o.engine.synthetic = SyntheticModel{.layers = 1, .experts = 8, .vocab = 512, .seed = 3};
  o.engine.max_model_len = 64;
  o.engine.max_num_batched_tokens = 16;
  o.engine.max_num_seqs = 1;
  o.engine.threads = 1;
  o.engine.rank_timeout_s = 120;
  o.all_logits = true;
  return o;
}

// Logits of a few tokens and of a draft behind them.
std::vector<float> LogitsOf(Executor& e) {
  std::vector<TokenId> tokens;
  for (TokenId id = 3; id < 15; ++id) tokens.push_back(id * 31 % 509);
  const SeqSlot slot = e.kv().Open();
  EXPECT_TRUE(e.kv().Reserve(slot, 32));
  const SeqRows rows{slot, tokens, 0, std::ssize(tokens)};
  const std::span<const float> step = e.Step({&rows, 1});
  std::vector<float> logits(step.begin(), step.end());
  e.kv().SetLength(slot, std::ssize(tokens));
  const DraftSeq draft{slot, 17, 0, 1, 0, Stream::kDraft};
  const std::span<const float> drafted = e.Draft({&draft, 1}).logits;
  logits.insert(logits.end(), drafted.begin(), drafted.end());
  e.kv().Close(slot);
  return logits;
}

TEST(RankParts, SyntheticModelsHaveTheBitsOfOneRank) {
  std::vector<float> want;
  {
    Executor alone(SyntheticOptions());
    want = LogitsOf(alone);
  }
  const World world{"tp", 2};
  const auto got =
      OnRanks<std::vector<float>>(SyntheticOptions(), world.ranks, world.options(), LogitsOf);
  EXPECT_TRUE(got == want);
}

constexpr int64_t kPage = 4096;

// Of the bytes [data, data + bytes) those on pages that are in memory.
int64_t ResidentBytes(const uint8_t* data, int64_t bytes) {
  const auto begin = reinterpret_cast<int64_t>(data), end = begin + bytes;
  const int file = open("/proc/self/pagemap", O_RDONLY);
  int64_t resident = 0;
  for (int64_t page = begin / kPage; page * kPage < end; ++page) {
    uint64_t entry = 0;
    if (pread(file, &entry, sizeof entry, page * 8) != sizeof entry) entry = 0;
    if (entry >> 63 == 1)
      resident += std::min(end, (page + 1) * kPage) - std::max(begin, page * kPage);
  }
  close(file);
  return resident;
}

// What is in memory of a rank's part of the weights is what the plan says, part by part, and there
// is nothing else.
TEST(RankParts, MemoryIsThatOfThePlan) {
  const ModelConfig config = SyntheticConfig(*SyntheticOptions().engine.synthetic);
  for (const int ranks : {2, 4}) {
    const Layout layout(config, {"tp", ranks});
    const int rank = ranks - 1;
    const auto own = [&](const TensorSpec& t) {
      return BytesOf(layout.SliceOf(t.name, rank).rows, t.bytes());
    };
    const Checkpoint checkpoint = Checkpoint::Random(config, 1, 1, own);
    std::map<std::string, int64_t> resident;
    int64_t sum = HostMemory(config, layout);
    for (const TensorSpec& t : ShapeTable(config)) {
      const Range part = own(t);
      if (t.part == Part::kVision) {  // not part of the plan
        sum += part.size();
        continue;
      }
      resident[MemoryPartOf(t, layout)] +=
          ResidentBytes(checkpoint.Find(t.name)->data + part.begin, part.size());
    }
    std::map<std::string, int64_t> planned = {{kOnHost, HostMemory(config, layout)}};
    for (const MemoryPart& p : RankMemory(config, layout, rank))
      planned[p.name] = p.bytes, sum += p.bytes;
    EXPECT_EQ(resident, planned) << ranks << " ranks";
    EXPECT_EQ(checkpoint.total_bytes(), sum);
  }
}

}  // namespace
}  // namespace deepinfer
