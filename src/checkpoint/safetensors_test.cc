#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/test_files.h"

namespace deepinfer {
namespace {

using ::testing::ElementsAre;
using testing::Framed;
using ::testing::HasSubstr;
using testing::Refusal;

SafetensorsHeader Parse(const std::string& file) {
  return ParseSafetensorsHeader(reinterpret_cast<const uint8_t*>(file.data()),
                                static_cast<int64_t>(file.size()), "f");
}
// A header and `data_bytes` zeros behind it.
std::string RefusalOf(const std::string& json, size_t data_bytes) {
  return Refusal([&] { Parse(Framed(json) + std::string(data_bytes, '\0')); });
}

constexpr char kTwo[] =
    R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[3,11]},"a":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]},)"
    R"("__metadata__":{"format":"pt","more":"text"}}   )";

TEST(SafetensorsHeader, ReadsEntriesByOffset) {
  const SafetensorsHeader header = Parse(Framed(kTwo) + std::string(11, '\0'));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.data_start, static_cast<int64_t>(8 + sizeof(kTwo) - 1));
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_THAT(header.tensors[0].shape, ElementsAre(3, 1));
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].dtype, "F32");
  EXPECT_EQ(header.tensors[1].begin, 3);
  EXPECT_EQ(header.tensors[1].end, 11);
}

TEST(SafetensorsHeader, WrongFileLengthsAreRefused) {
  EXPECT_THAT(Refusal([] { Parse("short"); }),
              HasSubstr("f: expected a safetensors file of at least 8 bytes, found 5"));
  EXPECT_THAT(Refusal([] { Parse(std::string(8, '\xff')); }),
              HasSubstr("header of at most 100000000 bytes"));
  EXPECT_THAT(Refusal([] { Parse(Framed(kTwo).substr(0, 40)); }),
              HasSubstr("bytes for its header, found 40 bytes"));
  EXPECT_THAT(RefusalOf(kTwo, 10), HasSubstr("by its header (last tensor b), found"));
  EXPECT_THAT(RefusalOf(kTwo, 12), HasSubstr("by its header (last tensor b), found"));
}

TEST(SafetensorsHeader, BrokenLayoutsNameFileAndTensor) {
  const struct {
    const char* json;
    const char* message;
  } cases[] = {
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       "f: b: expected to begin at data offset 4 behind the tensor before it, found 2 (overlap)"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})",
       "found 6 (hole)"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", "found 1 (hole)"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})",
       "f: a: expected 16 bytes for F32 [4], found data_offsets [0, 4]"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", "found data_offsets [4, 0]"},
      {R"({"a":{"dtype":"U8","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
       "expected too many bytes"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})",
       "by its header"},
      {R"({"a":{"dtype":"Q3","shape":[4],"data_offsets":[0,4]}})",
       "f: a: expected a known dtype, found Q3"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
       "f: a: expected one entry, found two"},
  };
  for (const auto& c : cases) EXPECT_THAT(RefusalOf(c.json, 8), HasSubstr(c.message)) << c.json;
}

TEST(SafetensorsHeader, BrokenEntriesAreRefused) {
  for (const char* json : {
           "",
           "7",
           "[]",
           "null",
           "{",
           R"({"a":7})",
           R"({"a":[]})",
           R"({"a":{}})",
           R"({"a":{"dtype":"U8","shape":[4]}})",
           R"({"a":{"dtype":7,"shape":[4],"data_offsets":[0,4]}})",
           R"({"a":{"dtype":"U8","shape":4,"data_offsets":[0,4]}})",
           R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})",
           R"({"a":{"dtype":"U8","shape":[4.5],"data_offsets":[0,4]}})",
           R"({"a":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}})",
           R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}})",
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]}})",
           R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"extra":1}})",
       }) {
    const std::string message = RefusalOf(json, 4);
    EXPECT_TRUE(message.starts_with("f: ")) << json << " gave " << message;
  }
  EXPECT_THAT(RefusalOf(std::string(100000, '['), 0), HasSubstr("expected"));
  EXPECT_THAT(RefusalOf("{\"__metadata__\":{\"a\":" + std::string(100000, '['), 0),
              HasSubstr("nested levels"));
}

TEST(Index, ReadsTheWeightMap) {
  const auto entries = ParseIndex(
      R"({"metadata":{"total_size":7,"x":[1,{"weight_map":"no"}]},"weight_map":{"b":"2.st","a":"1.st"}})",
      "i");
  EXPECT_THAT(entries, ElementsAre(std::pair("b", "2.st"), std::pair("a", "1.st")));
}

TEST(Index, BrokenFilesAreRefused) {
  for (const char* json : {"", "[]", "{}", "5", R"({"weight_map":[]})", R"({"weight_map":{"a":7}})",
                           R"({"weight_map":{"a":null}})", R"({"weight_map":{"a":{"b":"c"}}})",
                           R"({"weight_map":{"a":"x/y"}})", R"({"weight_map":{"a":"../y"}})",
                           R"({"weight_map":{"a":""}})", R"({"weight_map":{"a":"1","a":"2"}})",
                           R"({"weight_map":{},"weight_map":{}})"}) {
    const std::string message = Refusal([&] { ParseIndex(json, "i"); });
    EXPECT_TRUE(message.starts_with("i: ")) << json << " gave " << message;
  }
}

TEST(Printable, HidesControlCharacters) {
  EXPECT_EQ(Printable("a\nb\x1b"), "a?b?");
  EXPECT_EQ(Printable(std::string(500, 'x')).size(), 163u);
}

}  // namespace
}  // namespace deepinfer
