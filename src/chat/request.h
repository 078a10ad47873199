// A chat request: what is to be rendered as a prompt, and how.
#pragma once

#include <string>
#include <string_view>

#include "chat/json_value.h"

namespace deepinfer {

// Effort names and the number that each writes into the prompt. The defaults are those of the
// current release.
struct EffortTable {
  int low = 50, high = 75, xhigh = 75, max = 100;
  int standard = 75;  // when the request names none
};

struct ChatRequest {
  // kChat is what a client of the server sends; kEncode is the layer below, which also takes
  // `context` and writes
  // "[Unsupported TYPE]" for a content part that kChat refuses.
  enum class Api { kChat, kEncode };
  Api api = Api::kChat;
  JsonValue messages;  // array
  JsonValue tools;     // array, or null
  JsonValue context;   // kEncode: array of messages that are already rendered, or null
  bool thinking = true;
  int effort = EffortTable().standard;  // 1..100, written in thinking mode
  bool drop_thinking = true;  // leave reasoning of earlier turns out, unless tools are declared
  bool add_bos = true;
};

// Reads a request from JSON: a list of messages, or an object with messages and optionally api
// ("chat" or "encode"), tools and kwargs; other keys of the object are ignored. kwargs of "chat":
// thinking, enable_thinking, reasoning_effort, drop_thinking; of "encode": thinking_mode
// ("thinking" or "chat"), reasoning_effort, drop_thinking, add_default_bos_token, context. Throws
// Error(kInvalid) naming the field, also for any other kwarg.
ChatRequest ParseChatRequest(const JsonValue& json, const EffortTable& efforts = {});

// The same for kwargs alone; `name` stands for them in errors.
void ApplyKwargs(const JsonValue& kwargs, const EffortTable& efforts, const std::string& name,
                 ChatRequest* request);

// The function object of the declared tool with this name; null when there is none.
const JsonValue* FindFunction(const JsonValue& tools, std::string_view name);

// The value of reasoning_effort: low, high, xhigh, max or an integer 1..100 set `effort`, none
// turns thinking off. Throws Error(kInvalid) for anything else.
void ApplyEffort(const JsonValue& value, const EffortTable& efforts, ChatRequest* request);

}  // namespace deepinfer
