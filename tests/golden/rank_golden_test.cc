// Golden sets hold on worlds of several ranks as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "rank_runs.h"
#include "verify/verify.h"

namespace deepinfer {
namespace {

const std::string kGolden = DI_SOURCE_DIR "/build/testdata/golden";

// Some prompts of a checkpoint's golden sets, in a directory of their own.
class SomeSets {
 public:
  SomeSets(const std::string& checkpoint, const std::vector<std::string>& prompts)
      : dir_(testing::TempDir() + "/deepinfer_some_sets." + std::to_string(getpid())) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    for (const std::string& prompt : prompts) {
      for (const char* end : {".json", ".safetensors"}) {
        const std::string file = "/" + checkpoint + ".release." + prompt + end;
        std::filesystem::create_symlink(kGolden + file, dir_ + file);
      }
    }
  }
  ~SomeSets() { std::filesystem::remove_all(dir_); }
  SomeSets(const SomeSets&) = delete;
  SomeSets& operator=(const SomeSets&) = delete;
  const std::string& dir() const { return dir_; }

 private:
  const std::string dir_;
};

TEST(RankGoldenTest, SetsHoldOnWorldsOfThreads) {
  struct Case {
    const char* checkpoint;
    World world;
  };
#ifdef DI_SANITIZED
  const std::vector<Case> cases = {{"tiny", {"tp", 1}}, {"tiny", {"tp", 2}}, {"tiny", {"tp", 4}}};
#else
  const std::vector<Case> cases = {{"tiny", {"tp", 1}},     {"tiny", {"tp", 2}},
                                   {"tiny", {"tp", 4}},     {"tiny", {"tp8r", 8}},
                                   {"tiny-odd", {"ep", 3}}, {"tiny", {"dp", 2}}};
#endif
  for (const auto& [checkpoint, world] : cases) {
    const SomeSets sets(checkpoint, {"window", "topk"});
    VerifyOptions options;
    options.engine = Options(checkpoint, "release", "auto").engine;
    options.engine.layout = world.layout;
    options.golden_dir = sets.dir();
    options.name = checkpoint;
    LeadRanks(MakeThreadWorld(world.ranks, std::chrono::seconds(60)), [&](Comm* comm) {
      options.world = comm;
      const Report report = Verify(options);
      EXPECT_EQ(report.sets(), 2);
      EXPECT_THAT(report.mismatches(), ::testing::IsEmpty())
          << checkpoint << " on " << world.ranks << " ranks\n"
          << report.Text();
    });
  }
}

}  // namespace
}  // namespace deepinfer
