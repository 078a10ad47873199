#include "config/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;

// Sets one environment variable (null removes it) for the life of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    Set(value);
  }
  ~Variable() { Set(old_.has_value() ? old_->c_str() : nullptr); }

 private:
  void Set(const char* value) {
    if (value != nullptr) {
      setenv(name_, value, 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

template <class Function>
std::string Refusal(Function run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(EngineOptions, DefaultsAreValid) { EXPECT_NO_THROW(EngineOptions().Validate()); }

TEST(EngineOptions, EnvironmentGivesValues) {
  const Variable model("DEEPINFER_MODEL", "some/where"), isa("DEEPINFER_ISA", "avx2"),
      threads("DEEPINFER_THREADS", "3");
  EngineOptions o;
  o.ApplyEnvironment();
  EXPECT_EQ(o.model, "some/where");
  EXPECT_EQ(o.isa, "avx2");
  EXPECT_EQ(o.threads, 3);
}

TEST(EngineOptions, UnknownVariableIsNamed) {
  const Variable wrong("DEEPINFER_THREAD", "3");
  const std::string text = Refusal([] { EngineOptions().ApplyEnvironment(); });
  EXPECT_THAT(text, HasSubstr("DEEPINFER_THREAD:"));
  EXPECT_THAT(text, HasSubstr("DEEPINFER_MODEL, DEEPINFER_ISA and DEEPINFER_THREADS"));
}

TEST(EngineOptions, VariableWithoutANumberIsNamed) {
  for (const char* value : {"", "many", "3x", "99999999999999999999"}) {
    const Variable threads("DEEPINFER_THREADS", value);
    EXPECT_EQ(Refusal([] { EngineOptions().ApplyEnvironment(); }),
              "DEEPINFER_THREADS: expected an integer, found \"" + std::string(value) + "\"");
  }
}

TEST(EngineOptions, ValuesOutOfRangeAreNamed) {
  const auto refusal = [](auto set) {
    EngineOptions o;
    set(o);
    return Refusal([&] { o.Validate(); });
  };
  EXPECT_THAT(refusal([](EngineOptions& o) { o.max_model_len = -1; }),
              HasSubstr("--max-model-len: expected"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.max_num_batched_tokens = 0; }),
              HasSubstr("--max-num-batched-tokens:"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.max_num_seqs = 0; }),
              HasSubstr("--max-num-seqs: expected"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.num_kv_blocks = -1; }),
              HasSubstr("--num-kv-blocks: expected"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.threads = 5000; }),
              HasSubstr("--threads: expected"));
  EXPECT_EQ(refusal([](EngineOptions& o) { o.isa = "sse"; }),
            "--isa: expected one of auto, generic, avx2, avx512, amx, found \"sse\"");
  EXPECT_THAT(refusal([](EngineOptions& o) { o.numerics = "bf16"; }),
              HasSubstr("--numerics: expected one of"));
  EXPECT_EQ(refusal([](EngineOptions& o) { o.reduce = "sum"; }),
            "--reduce: expected one of exact, fast, found \"sum\"");
  EXPECT_EQ(refusal([](EngineOptions& o) { o.engram = "heads"; }),
            "--engram: expected one of host, rows-fp8, rows-bf16, found \"heads\"");
  EXPECT_THAT(refusal([](EngineOptions& o) { o.max_num_seqs = 513; }),
              HasSubstr("at least --max-num-seqs = 513"));
  for (const double value : {1., -2., 1e9, std::nan("")}) {
    EXPECT_THAT(refusal([&](EngineOptions& o) { o.prefill_slowdown = value; }),
                HasSubstr("--prefill-slowdown: expected 0 or a ratio"));
  }
}

TEST(NumKvBlocks, FollowsTheSequencesUpToTheBudget) {
  EngineOptions o;
  EXPECT_EQ(NumKvBlocks(o, 1000, 64, 56960), 8 * 16);  // 8 sequences of 16 blocks
  EXPECT_EQ(NumKvBlocks(o, 1048576, 64, 56960), kDefaultKvBytes / 56960);  // the budget
  EXPECT_EQ(NumKvBlocks(o, 1048576, 64, int64_t{1} << 20),
            1048576 / 64);  // one sequence always fits
  o.num_kv_blocks = 5;
  EXPECT_EQ(NumKvBlocks(o, 1048576, 64, 56960), 5);
}

TEST(HubCacheDir, FollowsTheHubVariables) {
  const Variable home("HOME", "/h"), no_cache("HF_HUB_CACHE", nullptr),
      no_hf_home("HF_HOME", nullptr);
  EXPECT_EQ(HubCacheDir(), "/h/.cache/huggingface/hub");
  const Variable hf_home("HF_HOME", "/data/hf");
  EXPECT_EQ(HubCacheDir(), "/data/hf/hub");
  const Variable cache("HF_HUB_CACHE", "/cache");
  EXPECT_EQ(HubCacheDir(), "/cache");
}

}  // namespace
}  // namespace deepinfer
