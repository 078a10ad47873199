#include "checkpoint/model_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/test_files.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using testing::Refusal;
using testing::TempDir;
using testing::WriteText;

TEST(ResolveModelDir, TakesADirectoryAsItIs) {
  const TempDir dir;
  EXPECT_EQ(ResolveModelDir(dir.path(), ""), dir.path());
}

TEST(ResolveModelDir, FollowsTheHubCache) {
  const TempDir cache;
  const std::string repo = cache.path() + "/models--org--name";
  std::filesystem::create_directories(repo + "/refs");
  std::filesystem::create_directories(repo + "/snapshots/0123abc");
  WriteText(repo + "/refs/main", "0123abc");
  EXPECT_EQ(ResolveModelDir("org/name", cache.path()), repo + "/snapshots/0123abc");
  WriteText(repo + "/refs/main", "0123abd");
  EXPECT_THAT(Refusal([&] { ResolveModelDir("org/name", cache.path()); }),
              HasSubstr("found no directory in " + repo));
  WriteText(repo + "/refs/main", "../..");
  EXPECT_THAT(Refusal([&] { ResolveModelDir("org/name", cache.path()); }),
              HasSubstr("org/name: expected the snapshot"));
}

TEST(ResolveModelDir, SaysWhereItLooked) {
  const TempDir cache;
  EXPECT_THAT(Refusal([&] { ResolveModelDir("org/other", cache.path()); }),
              HasSubstr(cache.path() + "/models--org--other/refs/main"));
  EXPECT_THAT(Refusal([&] { ResolveModelDir("/no/such/place", cache.path()); }),
              HasSubstr("/no/such/place: expected"));
  EXPECT_THAT(Refusal([&] { ResolveModelDir("../x", cache.path()); }),
              HasSubstr("../x: expected a model directory"));
  EXPECT_THAT(Refusal([&] { ResolveModelDir("", cache.path()); }), HasSubstr("found nothing"));
  WriteText(cache.path() + "/file", "");
  EXPECT_THAT(Refusal([&] { ResolveModelDir(cache.path() + "/file", ""); }),
              HasSubstr("expected a model directory"));
}

}  // namespace
}  // namespace deepinfer
