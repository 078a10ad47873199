// The chat page at "/": HTML, style and script in one piece.
#pragma once

#include <string_view>

namespace deepinfer {

extern const std::string_view kChatPage;

}  // namespace deepinfer
