// Any text as a JSON schema, a regular expression or a list of tools: an Error, or a grammar from
// whose every state an end can be reached.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "grammar/json_schema.h"
#include "grammar/token_masks.h"

namespace {

using namespace deepinfer;

std::shared_ptr<const TokenTrie> Bytes() {
  std::vector<std::string> words;
  for (int byte = 0; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"\": ", "{\"", "\"}", "null", "[[", "</"}) words.emplace_back(word);
  return std::make_shared<const TokenTrie>(
      std::vector<std::string_view>(words.begin(), words.end()));
}

constexpr std::string_view kTool = R"([{"function": {"name": "f", "parameters": {
    "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}, "required": ["s"]}}}])";

// What the text is to be; the highest bit asks for calls or JSON.
std::shared_ptr<const Grammar> Make(std::string_view text, uint8_t kind) {
  const bool either = (kind & 128) != 0;
  switch (kind % 3) {
    case 0:
      return either ? CallsOrJsonGrammar(kTool, true, text) : JsonSchemaGrammar(text);
    case 1:
      return RegexGrammar(text);
    default:
      return either ? CallsOrJsonGrammar(text, false, "") : ToolCallGrammar(text, "", true);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const TokenTrie> kTrie = Bytes();
  if (size == 0 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const auto grammar = Make(text, data[0]);
    const auto stop = static_cast<TokenId>(kTrie->vocab_size());
    TokenMasks masks(grammar, kTrie, {stop}, stop + 1);
    GrammarState state = masks.Start();
    uint32_t random = data[0];
    for (int step = 0; step < 40; ++step) {
      const TokenMask& mask = masks.Mask(state);
      DI_CHECK(mask.Count() > 0);
      random = random * 1664525 + 1013904223;
      TokenId token = static_cast<TokenId>((random >> 8) % static_cast<uint32_t>(stop + 1));
      while (!mask.Allows(token)) token = (token + 1) % (stop + 1);
      if (token == stop) break;
      DI_CHECK(masks.Advance(token, &state));
    }
  } catch (const Error&) {
  }
  return 0;
}
