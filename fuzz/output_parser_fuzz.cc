// Any text as the model's answer: parsed alike however it is cut, no tag in its content, arguments
// that are JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "chat/output_cuts.h"
#include "tokenizer/unicode.h"

namespace {

using namespace deepinfer;

// Pieces of one to eight characters, as the first byte says.
std::vector<std::string_view> Cut(std::string_view text, uint8_t seed) {
  std::vector<std::string_view> pieces;
  const char* end = text.data();
  uint32_t random = seed;
  uint32_t left = 0;
  for (const std::string_view c : Characters(text)) {
    if (left == 0) {
      random = random * 1664525 + 1013904223;
      left = 1 + (random >> 24) % 8;
      pieces.push_back({end, 0});
    }
    --left;
    end = c.data() + c.size();
    pieces.back() = {pieces.back().data(), static_cast<size_t>(end - pieces.back().data())};
  }
  return pieces;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const JsonValue kTools = ParseJson(
      R"([{"function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"},
          "n": {"type": "integer"}, "o": {"properties": {"k": {"type": ["number", "null"]}}}}}}}])",
      "tools");
  if (size == 0) return 0;
  const std::string text = ReplaceInvalidUtf8({reinterpret_cast<const char*>(data) + 1, size - 1});
  OutputParserOptions options;
  options.thinking = (data[0] & 1) != 0;
  if ((data[0] & 2) != 0) options.tools = kTools;
  options.drop_calls = (data[0] & 12) == 12;
  const ParsedOutput whole = ParseOutput(options, text);
  DI_CHECK(ParsePieces(options, Cut(text, data[0])) == whole);
  for (const char* tag :
       {"<think>", "</think>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"})
    DI_CHECK(whole.content.find(tag) == std::string::npos) << tag;
  if ((data[0] & 2) != 0) {
    DI_CHECK(whole.content.find("<｜DSML｜ calls>") == std::string::npos);
    DI_CHECK(whole.content.find("<｜DSML｜ invoke name=\"") == std::string::npos);
  }
  if ((data[0] & 2) == 0) return 0;
  DI_CHECK(SentAgrees(whole));
  for (const ParsedOutput::Call& call : whole.calls) {
    DI_CHECK(!call.name.empty());
    DI_CHECK(TryParseJson(call.arguments).has_value()) << call.arguments;
  }
  return 0;
}
