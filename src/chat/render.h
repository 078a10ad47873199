// Messages to prompt (spec 07 section 8).
#pragma once

#include <string>
#include <vector>

#include "base/text_span.h"
#include "chat/request.h"

namespace deepinfer {

struct ChatPrompt {
  // What stands in the prompt: role and thinking tokens as kToken, fixed texts as kTrusted,
  // everything that came with the request (content, reasoning, names, arguments, schemas) as
  // kPlain. Neighbours differ in kind, tokens aside.
  std::vector<TextSpan> spans;
  // Number, in the request's order, of the image that each image token stands for.
  std::vector<int> image_order;

  // The prompt as one string.
  std::string Text() const;
};

// Throws Error(kInvalid) naming the message and field that are wrong.
ChatPrompt RenderChat(const ChatRequest& request);

}  // namespace deepinfer
