#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace deepinfer {
namespace {

using ::testing::ElementsAre;

class NormalizeArgumentsTest : public ::testing::Test {
 protected:
  NormalizeArgumentsTest() {
    CLI::App* run = app_.add_subcommand("run");
    run->add_option("--max-len,-m", max_len_);
    run->add_option("--prompt", prompt_);
    run->add_option("text", text_);
    run->add_flag("--by-line", by_line_);
  }
  std::vector<std::string> Normalized(std::vector<std::string> args) const {
    return NormalizeArguments(app_, args);
  }

  CLI::App app_;
  std::string max_len_, prompt_, text_;
  bool by_line_ = false;
};

TEST_F(NormalizeArgumentsTest, UnderscoreIsADashInNames) {
  EXPECT_THAT(Normalized({"run", "--max_len", "7", "--by_line"}),
              ElementsAre("run", "--max-len", "7", "--by-line"));
  EXPECT_THAT(Normalized({"run", "--max_len=a_b"}), ElementsAre("run", "--max-len=a_b"));
  EXPECT_THAT(Normalized({"run", "--un_known"}), ElementsAre("run", "--un-known"));
}

TEST_F(NormalizeArgumentsTest, ValuesStayAsTheyAre) {
  EXPECT_THAT(Normalized({"run", "--prompt", "--max_len", "-m", "a_b", "snake_case"}),
              ElementsAre("run", "--prompt", "--max_len", "-m", "a_b", "snake_case"));
  EXPECT_THAT(Normalized({"run", "--by_line", "--max_len", "1"}),
              ElementsAre("run", "--by-line", "--max-len", "1"));
  EXPECT_THAT(Normalized({"run", "--", "--max_len"}), ElementsAre("run", "--", "--max_len"));
  EXPECT_THAT(Normalized({}), ElementsAre());
}

TEST_F(NormalizeArgumentsTest, ParsesToTheSameOptions) {
  std::vector<std::string> args = Normalized({"run", "--max_len", "7", "--prompt", "--by_line"});
  std::reverse(args.begin(), args.end());
  app_.parse(args);
  EXPECT_EQ(max_len_, "7");
  EXPECT_EQ(prompt_, "--by_line");
  EXPECT_FALSE(by_line_);
}

}  // namespace
}  // namespace deepinfer
