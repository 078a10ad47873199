// The bodies of POST /v1/completions and /v1/chat/completions (OpenAI API, with the further fields
// of vLLM that docs/serving.md lists). A field that is not known, or asks for something that this
// server does not do, is refused by name.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "chat/render.h"
#include "chat/request.h"
#include "engine/request.h"
#include "server/json_fields.h"

namespace deepinfer {

inline constexpr int64_t kMaxChoices = 128;  // answers of one request: prompts x n
inline constexpr int64_t kMaxStops = 64;     // stop texts, and stop token ids

// What both kinds of request share.
struct ApiRequest {
  std::string model;  // empty: whatever is served
  std::string user;   // who asks, for the log
  Request engine;     // without prompt
  int64_t n = 1;      // answers per prompt
  bool stream = false;
  bool include_usage = false;  // stream_options: a last chunk with the usage
};

struct CompletionRequest {
  ApiRequest api;
  // Text gets a begin-of-sentence token in front unless add_special_tokens is false.
  std::vector<std::variant<std::string, std::vector<TokenId>>> prompts;
  bool add_special_tokens = true;
  // The answer's text begins with the prompt, and its log-probabilities with those of the prompt.
  bool echo = false;
};

// A grammar that the answer must keep to, as the request asks for it.
struct AnswerForm {
  enum class Kind { kFree, kObject, kSchema, kCalls };
  Kind kind = Kind::kFree;
  std::string schema = {};  // kSchema: JSON
  // JSON. kCalls: what is to be called; kObject, kSchema: what may be called instead, or empty.
  std::string tools = {};
  std::string tool = {};       // kCalls: the one that must be called, or empty: any
  bool several_calls = false;  // more than one call may be made
  auto operator<=>(const AnswerForm&) const = default;
};

struct ChatCompletionRequest {
  ApiRequest api;
  ChatRequest chat;
  bool may_call = false;  // tools are declared, and tool_choice is not none
  bool parallel_tool_calls = true;
  AnswerForm form;  // what the grammar of the answer is made from
};

// Takes what makes a prompt: messages, tools, reasoning_effort, thinking, chat_template_kwargs.
ChatRequest TakeChat(JsonFields& fields);
// RenderChat, refusing images by name.
ChatPrompt RenderText(const ChatRequest& request);

// `defaults`: what the model's makers want where a request does not say. All throw Error.
CompletionRequest ParseCompletionRequest(const JsonValue& json, const SamplingParams& defaults);
ChatCompletionRequest ParseChatCompletionRequest(const JsonValue& json,
                                                 const SamplingParams& defaults);

}  // namespace deepinfer
