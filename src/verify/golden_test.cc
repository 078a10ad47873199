#include "verify/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"

namespace deepinfer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kRecord[] =
    R"({"prompt": [3, 4], "argmax": [5, 6], "argmax_margin": [1, 0.5], "greedy": [6],
        "greedy_margin": [0.5], "kept_positions": [1]})";

class GoldenTest : public ::testing::Test {
 protected:
  GoldenTest() {
    dir_ = ::testing::TempDir() + "/golden_test";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void Write(const std::string& file, const std::string& bytes) {
    std::ofstream(dir_ + "/" + file, std::ios::binary) << bytes;
  }
  // The set m.fp32.p: `record`, and one array of one row.
  void WriteSet(const std::string& record, const std::string& array_entry, size_t data_bytes) {
    Write("m.fp32.p.json", record);
    const std::string header = "{" + array_entry + "}";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    file += header;
    for (size_t i = 0; i < data_bytes; i += 4) {
      const int32_t value = static_cast<int32_t>(i / 4 + 1);
      file.append(reinterpret_cast<const char*>(&value), 4);
    }
    Write("m.fp32.p.safetensors", file);
  }
  GoldenSet Load() const { return LoadGoldenSet(dir_, "m", "fp32", "p", 10); }
  std::string Failure(const std::function<void()>& f) const {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  std::string dir_;
};

constexpr char kSelected[] =
    R"("layers.0.selected": {"dtype": "I32", "shape": [1, 2], "data_offsets": [0, 8]})";

TEST_F(GoldenTest, ReadsBothFiles) {
  WriteSet(kRecord, kSelected, 8);
  const GoldenSet set = Load();
  EXPECT_THAT(set.prompt, ElementsAre(3, 4));
  EXPECT_THAT(set.argmax_margin, ElementsAre(1.0f, 0.5f));
  EXPECT_THAT(set.kept_positions, ElementsAre(1));
  ASSERT_NE(set.Find("layers.0.selected"), nullptr);
  EXPECT_THAT(set.Find("layers.0.selected")->ints, ElementsAre(1, 2));
  EXPECT_EQ(set.Find("layers.0.selected")->cols(), 2);
  EXPECT_EQ(set.Find("logits"), nullptr);
  EXPECT_FALSE(set.has_streams());
}

TEST_F(GoldenTest, FindsPromptsOfOneNameAndMode) {
  for (const char* file : {"m.fp32.b.json", "m.fp32.a.json", "m.fp32.a.safetensors",
                           "m.release.c.json", "m-2.fp32.d.json", "m.summary.json", "m.fp32.json"})
    Write(file, "");
  EXPECT_THAT(FindGoldenPrompts(dir_, "m", "fp32"), ElementsAre("a", "b"));
  EXPECT_THAT(Failure([&] { FindGoldenPrompts(dir_, "m", "trn2"); }),
              AllOf(HasSubstr(dir_), HasSubstr("m.trn2.*.json"), HasSubstr("none")));
  EXPECT_THAT(Failure([&] { FindGoldenPrompts(dir_ + "/no", "m", "fp32"); }), HasSubstr("/no"));
}

TEST_F(GoldenTest, BadRecordsAreNamed) {
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"[3, 4]", "[3, 10]", "prompt: expected token ids from 0 to 9, found 10"},
      {"[3, 4]", "[-1, 4]", "found -1"},
      {"[3, 4]", "[3, 4.5]", "prompt: expected numbers"},
      {"[3, 4]", "[3, 4294967299]", "prompt: expected numbers"},
      {"[3, 4]", "[]", "prompt: expected at least one"},
      {"[3, 4]", "7", "prompt: expected a list"},
      {"[5, 6]", "[5]", "argmax: expected 2 entries, found 1"},
      {"[5, 6]", "[5, 11]", "argmax: expected token ids"},
      {"[6]", "[6, 7]", "greedy_margin: expected 2 entries, found 1"},
      {"\"kept_positions\": [1]", "\"kept_positions\": [2]", "kept_positions: expected ascending"},
      {"\"kept_positions\": [1]", "\"kept_positions\": [1, 1]", "kept_positions: expected"},
      {"\"kept_positions\": [1]", "\"kept\": [1]", "kept_positions: expected a list"},
      {"{", "[", "expected a JSON object"},
  };
  for (const auto& c : cases) {
    std::string record = kRecord;
    record.replace(record.find(c.from), std::strlen(c.from), c.to);
    WriteSet(record, kSelected, 8);
    EXPECT_THAT(Failure([&] { Load(); }), AllOf(HasSubstr("m.fp32.p.json"), HasSubstr(c.message)));
  }
}

TEST_F(GoldenTest, BadArraysAreNamed) {
  const auto failure = [&](const char* entry, size_t bytes) {
    WriteSet(kRecord, entry, bytes);
    return Failure([&] { Load(); });
  };
  EXPECT_THAT(failure(R"("logits": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]})", 8),
              AllOf(HasSubstr("logits"), HasSubstr("expected 1 rows"), HasSubstr("found 2")));
  EXPECT_THAT(failure(R"("pre.1": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]})", 8),
              HasSubstr("expected 2 rows"));
  EXPECT_THAT(failure(R"("logits": {"dtype": "BF16", "shape": [1, 4], "data_offsets": [0, 8]})", 8),
              HasSubstr("found BF16"));
  EXPECT_THAT(failure(R"("logits": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]})", 4),
              HasSubstr("at least one dimension"));
  EXPECT_THAT(failure(kSelected, 4), HasSubstr("m.fp32.p.safetensors"));
}

TEST_F(GoldenTest, MissingFilesAreNamed) {
  EXPECT_THAT(Failure([&] { Load(); }), HasSubstr("m.fp32.p.json"));
  Write("m.fp32.p.json", kRecord);
  EXPECT_THAT(Failure([&] { Load(); }), HasSubstr("m.fp32.p.safetensors"));
}

}  // namespace
}  // namespace deepinfer
