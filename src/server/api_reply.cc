#include "server/api_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

ordered_json OrNull(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

ordered_json Head(const ReplyHead& head, const char* object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

// Parallel lists, as the older endpoint has them.
ordered_json CompletionLogprobs(const CompletionPart& part, const Tokenizer& tokenizer) {
  ordered_json tokens = ordered_json::array(), chosen = tokens, tops = tokens, offsets = tokens;
  int64_t offset = part.text_offset;
  if (part.first_token) {
    tokens.push_back(tokenizer.TokenBytes(*part.first_token));
    chosen.push_back(nullptr);
    tops.push_back(nullptr);
    offsets.push_back(offset);
    offset += part.first_characters;
  }
  for (const TokenLogprob& t : part.logprobs) {
    const std::string_view text = tokenizer.TokenBytes(t.id);
    tokens.push_back(text);
    chosen.push_back(t.logprob);
    ordered_json top = ordered_json::object();
    for (const auto& [id, logprob] : t.top) top.emplace(tokenizer.TokenBytes(id), logprob);
    top.emplace(text, t.logprob);
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += CountCharacters(text);
  }
  return {{"tokens", tokens},
          {"token_logprobs", chosen},
          {"top_logprobs", tops},
          {"text_offset", offsets}};
}

ordered_json ChatLogprob(TokenId id, float logprob, const Tokenizer& tokenizer) {
  const std::string_view text = tokenizer.TokenBytes(id);
  ordered_json bytes = ordered_json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", text}, {"logprob", logprob}, {"bytes", bytes}};
}

ordered_json ChatLogprobs(const ChatPart& part, const Tokenizer& tokenizer) {
  ordered_json content = ordered_json::array();
  for (const TokenLogprob& t : part.logprobs) {
    ordered_json entry = ChatLogprob(t.id, t.logprob, tokenizer);
    ordered_json top = ordered_json::array();
    for (const auto& [id, logprob] : t.top) top.push_back(ChatLogprob(id, logprob, tokenizer));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

ordered_json ToolCallJson(const ToolCallPart& call, bool chunk) {
  ordered_json json, function;
  if (chunk) json["index"] = call.index;
  if (!call.id.empty()) {
    json["id"] = call.id;
    json["type"] = "function";
    function["name"] = call.name;
  }
  function["arguments"] = call.arguments;
  json["function"] = std::move(function);
  return json;
}

// The delta of a chunk has only what is new; a message has everything.
ordered_json ChatMessage(const ChatPart& part, bool chunk) {
  ordered_json message = ordered_json::object();
  if (!chunk || part.first) message["role"] = "assistant";
  if (!part.reasoning.empty()) {
    message["reasoning_content"] = part.reasoning;
    message["reasoning"] = part.reasoning;
  }
  if (!chunk) {
    message["content"] = OrNull(part.content);
  } else if (!part.content.empty() || part.first) {
    message["content"] = part.content;
  }
  if (!part.tool_calls.empty()) {
    ordered_json calls = ordered_json::array();
    for (const ToolCallPart& call : part.tool_calls) calls.push_back(ToolCallJson(call, chunk));
    message["tool_calls"] = std::move(calls);
  }
  return message;
}

}  // namespace

std::string Dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string RandomHex(int digits) {
  thread_local std::mt19937_64 random(std::random_device{}());
  std::string text;
  while (std::ssize(text) < digits) text += fmt::format("{:08x}", static_cast<uint32_t>(random()));
  text.resize(static_cast<size_t>(digits));
  return text;
}

int64_t CountCharacters(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string CompletionReply(const ReplyHead& head, const std::vector<CompletionPart>& choices,
                            const Usage* usage, const Tokenizer& tokenizer) {
  ordered_json json = Head(head, "text_completion");
  json["choices"] = ordered_json::array();
  for (const CompletionPart& part : choices) {
    json["choices"].push_back({{"index", part.index},
                               {"text", part.text},
                               {"logprobs", part.has_logprobs ? CompletionLogprobs(part, tokenizer)
                                                              : ordered_json(nullptr)},
                               {"finish_reason", OrNull(part.finish_reason)}});
  }
  if (usage != nullptr) json["usage"] = UsageJson(*usage);
  return Dump(json);
}

std::string ChatReply(const ReplyHead& head, const std::vector<ChatPart>& choices,
                      const Usage* usage, bool chunk, const Tokenizer& tokenizer) {
  ordered_json json = Head(head, chunk ? "chat.completion.chunk" : "chat.completion");
  json["choices"] = ordered_json::array();
  for (const ChatPart& part : choices) {
    json["choices"].push_back(
        {{"index", part.index},
         {chunk ? "delta" : "message", ChatMessage(part, chunk)},
         {"logprobs", part.has_logprobs ? ChatLogprobs(part, tokenizer) : ordered_json(nullptr)},
         {"finish_reason", OrNull(part.finish_reason)}});
  }
  if (usage != nullptr) json["usage"] = UsageJson(*usage);
  return Dump(json);
}

std::string ErrorReply(int status, std::string_view message) {
  const char* type = "invalid_request_error";
  if (status == 401) type = "authentication_error";
  if (status == 404) type = "not_found_error";
  if (status >= 500) type = "server_error";
  return Dump(
      {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", status}}}});
}

}  // namespace deepinfer
