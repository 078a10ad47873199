#include "server/openapi.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "server/api_reply.h"

namespace deepinfer {
namespace {

using nlohmann::ordered_json;

// Fields of both kinds of request. Everywhere a field that is null counts as absent.
constexpr std::string_view kSharedFields = R"json({
  "model": {"type": "string"},
  "user": {"type": "string"},
  "temperature": {"type": "number", "minimum": 0, "maximum": 2},
  "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
  "top_k": {"type": "integer", "minimum": -1, "maximum": 2147483647},
  "min_p": {"type": "number", "minimum": 0, "maximum": 1},
  "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
  "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
  "repetition_penalty": {"type": "number", "exclusiveMinimum": 0},
  "min_tokens": {"type": "integer", "minimum": 0, "maximum": 2147483647},
  "logit_bias": {"type": "object", "propertyNames": {"pattern": "^[0-9]{1,9}$"},
                 "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
  "seed": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807},
  "stop": {"anyOf": [{"type": "string", "minLength": 1},
                     {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 64}]},
  "stop_token_ids": {"type": "array", "items": {"$ref": "#/components/schemas/TokenId"}, "maxItems": 64},
  "ignore_eos": {"type": "boolean"},
  "n": {"type": "integer", "minimum": 1, "maximum": 128},
  "stream": {"type": "boolean"},
  "stream_options": {"type": "object", "additionalProperties": false,
                     "properties": {"include_usage": {"type": "boolean"}}},
  "max_tokens": {"type": "integer", "minimum": 1, "maximum": 2147483647}
})json";

constexpr std::string_view kCompletionFields = R"json({
  "prompt": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TokenIds"},
                       {"type": "array", "minItems": 1, "maxItems": 128,
                        "items": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TokenIds"}]}}]},
  "max_tokens": {"type": "integer", "minimum": 0, "maximum": 2147483647},
  "logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
  "echo": {"type": "boolean"},
  "add_special_tokens": {"type": "boolean"}
})json";

// What makes a prompt out of messages; /tokenize takes them too.
constexpr std::string_view kMessageFields = R"json({
  "messages": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Message"}},
  "tools": {"type": "array", "items": {"$ref": "#/components/schemas/Tool"}},
  "reasoning_effort": {"$ref": "#/components/schemas/Effort"},
  "thinking": {"anyOf": [{"type": "boolean"},
                         {"type": "object", "required": ["type"], "additionalProperties": false,
                          "properties": {"type": {"enum": ["enabled", "disabled"]}}}]},
  "chat_template_kwargs": {"type": "object", "additionalProperties": false, "properties": {
    "thinking": {"type": "boolean"}, "enable_thinking": {"type": "boolean"},
    "drop_thinking": {"type": "boolean"}, "reasoning_effort": {"$ref": "#/components/schemas/Effort"}}}
})json";

constexpr std::string_view kChatFields = R"json({
  "max_completion_tokens": {"type": "integer", "minimum": 1, "maximum": 2147483647},
  "logprobs": {"type": "boolean"},
  "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
  "tool_choice": {"anyOf": [{"enum": ["none", "auto", "required"]},
                            {"type": "object", "required": ["type", "function"], "properties": {
                              "type": {"const": "function"},
                              "function": {"type": "object", "required": ["name"],
                                           "properties": {"name": {"type": "string"}}}}}]},
  "parallel_tool_calls": {"type": "boolean"},
  "response_format": {"type": "object", "required": ["type"], "additionalProperties": false, "properties": {
    "type": {"enum": ["text", "json_object", "json_schema"]},
    "json_schema": {"type": "object", "required": ["schema"], "additionalProperties": false, "properties": {
      "name": {"type": "string"}, "description": {"type": "string"}, "strict": {"type": "boolean"},
      "schema": {"type": ["object", "boolean"]}}}}}
})json";

constexpr std::string_view kTokenizeFields = R"json({
  "model": {"type": "string"},
  "prompt": {"type": "string"},
  "add_special_tokens": {"type": "boolean"},
  "return_token_strs": {"type": "boolean"}
})json";

constexpr std::string_view kDetokenizeFields = R"json({
  "model": {"type": "string"},
  "tokens": {"type": "array", "items": {"$ref": "#/components/schemas/TokenId"}}
})json";

constexpr std::string_view kSchemas = R"json({
  "TokenId": {"type": "integer", "minimum": 0, "maximum": 2147483647},
  "TokenIds": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TokenId"}},
  "Effort": {"anyOf": [{"enum": ["none", "low", "high", "xhigh", "max"]},
                       {"type": "integer", "minimum": 1, "maximum": 100}]},
  "Message": {"type": "object", "required": ["role"], "additionalProperties": false, "properties": {
    "role": {"enum": ["system", "developer", "user", "assistant", "tool", "latest_reminder"]},
    "content": {"anyOf": [{"type": "string"}, {"type": "null"},
                          {"type": "array", "items": {"type": "object", "required": ["type", "text"], "properties": {
                            "type": {"const": "text"}, "text": {"type": "string"}}}}]},
    "reasoning": {"type": "string"}, "reasoning_content": {"type": "string"},
    "tool_call_id": {"type": "string"}, "name": {"type": "string"},
    "task": {"enum": ["action", "query", "authority", "domain", "title", "read_url"]},
    "tools": {"type": "array", "items": {"$ref": "#/components/schemas/Tool"}},
    "response_format": {"type": "object"}, "wo_eos": {"type": "boolean"},
    "tool_calls": {"type": "array", "items": {"type": "object", "required": ["function"],
      "additionalProperties": false, "properties": {
      "id": {"type": "string"}, "type": {"const": "function"}, "index": {"type": "integer"},
      "function": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {
        "name": {"type": "string"}, "arguments": {"type": "string"}}}}}}}},
  "Tool": {"type": "object", "required": ["type", "function"], "additionalProperties": false, "properties": {
    "type": {"const": "function"},
    "function": {"type": "object", "required": ["name"], "properties": {
      "name": {"type": "string"}, "description": {"type": "string"}, "parameters": {"type": "object"}}}}},
  "Error": {"type": "object", "required": ["error"], "additionalProperties": false, "properties": {
    "error": {"type": "object", "required": ["message", "type", "param", "code"], "additionalProperties": false,
      "properties": {"message": {"type": "string"}, "param": {"type": "null"}, "code": {"type": "integer"},
        "type": {"enum": ["invalid_request_error", "authentication_error", "not_found_error", "server_error"]}}}}},
  "Usage": {"type": "object", "additionalProperties": false, "properties": {
    "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"},
    "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object", "properties": {"cached_tokens": {"type": "integer"}}},
    "completion_tokens_details": {"type": "object", "properties": {"reasoning_tokens": {"type": "integer"}}}},
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"]},
  "FinishReason": {"enum": ["stop", "length", "tool_calls"]},
  "Completion": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "additionalProperties": false, "properties": {
    "id": {"type": "string"}, "object": {"const": "text_completion"}, "created": {"type": "integer"},
    "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
    "choices": {"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": false,
      "required": ["index", "text", "logprobs", "finish_reason"], "properties": {
      "index": {"type": "integer"}, "text": {"type": "string"},
      "finish_reason": {"$ref": "#/components/schemas/FinishReason"},
      "logprobs": {"type": ["object", "null"], "additionalProperties": false, "properties": {
        "tokens": {"type": "array", "items": {"type": "string"}},
        "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
        "top_logprobs": {"type": "array", "items": {"type": ["object", "null"],
                                                    "additionalProperties": {"type": "number"}}},
        "text_offset": {"type": "array", "items": {"type": "integer"}}}}}}}}},
  "TokenLogprob": {"type": "object", "required": ["token", "logprob", "bytes"], "properties": {
    "token": {"type": "string"}, "logprob": {"type": "number"},
    "bytes": {"type": "array", "items": {"type": "integer"}},
    "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}},
  "ChatCompletion": {"type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "additionalProperties": false, "properties": {
    "id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"},
    "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
    "choices": {"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": false,
      "required": ["index", "message", "logprobs", "finish_reason"], "properties": {
      "index": {"type": "integer"}, "finish_reason": {"$ref": "#/components/schemas/FinishReason"},
      "logprobs": {"type": ["object", "null"], "properties": {
        "content": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}},
      "message": {"type": "object", "required": ["role", "content"], "additionalProperties": false, "properties": {
        "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
        "reasoning_content": {"type": "string"}, "reasoning": {"type": "string"},
        "tool_calls": {"type": "array", "items": {"type": "object", "required": ["id", "type", "function"],
          "properties": {"id": {"type": "string"}, "type": {"const": "function"},
            "function": {"type": "object", "required": ["name", "arguments"], "properties": {
              "name": {"type": "string"}, "arguments": {"type": "string"}}}}}}}}}}}}},
  "Models": {"type": "object", "required": ["object", "data"], "properties": {
    "object": {"const": "list"}, "data": {"type": "array", "items": {"type": "object",
      "required": ["id", "object", "created", "owned_by", "max_model_len"]}}}},
  "Tokens": {"type": "object", "required": ["count", "max_model_len", "tokens", "token_strs"], "properties": {
    "count": {"type": "integer"}, "max_model_len": {"type": "integer"},
    "tokens": {"type": "array", "items": {"$ref": "#/components/schemas/TokenId"}},
    "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}},
  "Text": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
  "Health": {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}},
  "Version": {"type": "object", "required": ["version"], "properties": {"version": {"type": "string"}}},
  "OpenApi": {"type": "object", "required": ["openapi", "paths"]}
})json";

ordered_json Ref(const char* schema) {
  return {{"$ref", std::string("#/components/schemas/") + schema}};
}

ordered_json Content(const char* type, ordered_json schema) {
  return {{type, {{"schema", std::move(schema)}}}};
}

// An operation that answers with `ok`, or with one of `statuses` and an Error.
ordered_json Operation(const char* id, ordered_json ok, std::initializer_list<int> statuses) {
  ordered_json responses;
  responses["200"] = {{"description", "as asked"}, {"content", std::move(ok)}};
  for (const int status : statuses) {
    responses[std::to_string(status)] = {{"description", "refused, see error.message"},
                                         {"content", Content("application/json", Ref("Error"))}};
  }
  return {{"operationId", id}, {"responses", std::move(responses)}};
}

ordered_json Get(const char* id, ordered_json ok, std::initializer_list<int> statuses) {
  return {{"get", Operation(id, std::move(ok), statuses)}};
}

// Takes an object of the fields of all `parts`.
ordered_json Post(const char* id, std::initializer_list<std::string_view> parts,
                  const ordered_json& required, ordered_json ok) {
  ordered_json properties;
  for (const std::string_view part : parts) properties.update(ordered_json::parse(part));
  const ordered_json schema = {{"type", "object"},
                               {"additionalProperties", false},
                               {"required", required},
                               {"properties", std::move(properties)}};
  ordered_json operation = Operation(id, std::move(ok), {400, 401, 404, 413, 431, 500, 503});
  operation["requestBody"] = {{"required", true}, {"content", Content("application/json", schema)}};
  return {{"post", std::move(operation)}};
}

// A whole reply as JSON, or a stream of events.
ordered_json Answer(const char* schema) {
  ordered_json content = Content("application/json", Ref(schema));
  content.update(Content("text/event-stream", {{"type", "string"}}));
  return content;
}

ordered_json Paths() {
  const auto json = [](const char* schema) { return Content("application/json", Ref(schema)); };
  const ordered_json text = {{"type", "string"}};
  ordered_json paths;
  paths["/v1/chat/completions"] = Post("chat", {kSharedFields, kMessageFields, kChatFields},
                                       {"messages"}, Answer("ChatCompletion"));
  paths["/v1/completions"] =
      Post("complete", {kSharedFields, kCompletionFields}, {"prompt"}, Answer("Completion"));
  paths["/v1/models"] = Get("models", json("Models"), {401, 503});
  paths["/tokenize"] =
      Post("tokenize", {kTokenizeFields, kMessageFields}, ordered_json::array(), json("Tokens"));
  paths["/detokenize"] = Post("detokenize", {kDetokenizeFields}, {"tokens"}, json("Text"));
  paths["/"] = Get("page", Content("text/html", text), {});
  paths["/health"] = Get("health", json("Health"), {503});
  paths["/version"] = Get("version", json("Version"), {});
  paths["/metrics"] = Get("metrics", Content("text/plain", text), {503});
  paths["/openapi.json"] = Get("description", json("OpenApi"), {});
  return paths;
}

std::string MakeOpenApi() {
  const ordered_json key = {{"type", "http"}, {"scheme", "bearer"}};
  return Dump(
      {{"openapi", "3.1.0"},
       {"info", {{"title", "deepinfer"}, {"version", DI_VERSION}}},
       {"paths", Paths()},
       {"security", {{{"key", ordered_json::array()}}, ordered_json::object()}},
       {"components",
        {{"schemas", ordered_json::parse(kSchemas)}, {"securitySchemes", {{"key", key}}}}}});
}

}  // namespace

const std::string& OpenApi() {
  static const std::string text = MakeOpenApi();
  return text;
}

}  // namespace deepinfer
