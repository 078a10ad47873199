// Any bytes as the body of a request to the server: either a request or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "server/api_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    ParseCompletionRequest(ParseJson(text, "fuzz"), {});
  } catch (const Error&) {
  }
  try {
    RenderText(ParseChatCompletionRequest(ParseJson(text, "fuzz"), {}).chat).Text();
  } catch (const Error&) {
  }
  return 0;
}
