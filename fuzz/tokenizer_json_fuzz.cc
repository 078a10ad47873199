// Any bytes as tokenizer.json: either a tokenizer that decodes its own ids or an Error.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/token_classes.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  try {
    const Tokenizer tokenizer =
        Tokenizer::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    std::vector<TokenId> ids(static_cast<size_t>(tokenizer.vocab_size()));
    std::iota(ids.begin(), ids.end(), 0);
    const std::string text = tokenizer.Decode(ids, false);
    TokenClasses(tokenizer);
    tokenizer.Encode(text);
  } catch (const Error&) {
  }
  return 0;
}
