// Any bytes as a chat request: either a prompt or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "chat/render.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    RenderChat(ParseChatRequest(ParseJson(text, "fuzz"))).Text();
  } catch (const Error&) {
  }
  return 0;
}
