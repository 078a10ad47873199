#include "chat/request.h"

#include <fmt/format.h>

#include "base/error.h"

namespace deepinfer {
namespace {

bool AsBool(const JsonValue& value, const std::string& name) {
  if (value.kind == JsonValue::Kind::kBool) return value.boolean;
  throw Error(Code::kInvalid,
              fmt::format("{}: expected true or false, found {}", name, DumpJson(value)));
}

bool AsThinkingMode(const JsonValue& value) {
  if (value.is_string() && value.text == "thinking") return true;
  if (value.is_string() && value.text == "chat") return false;
  throw Error(
      Code::kInvalid,
      fmt::format("thinking_mode: expected \"thinking\" or \"chat\", found {}", DumpJson(value)));
}

void ApplyKwarg(const std::string& key, const JsonValue& value, const std::string& name,
                ChatRequest* request) {
  const bool chat = request->api == ChatRequest::Api::kChat;
  if (key == "drop_thinking") {
    request->drop_thinking = AsBool(value, key);
  } else if (chat && (key == "thinking" || key == "enable_thinking")) {
    request->thinking = AsBool(value, key);
  } else if (!chat && key == "thinking_mode") {
    request->thinking = AsThinkingMode(value);
  } else if (!chat && key == "add_default_bos_token") {
    request->add_bos = AsBool(value, key);
  } else if (!chat && key == "context") {
    request->context = value;
  } else {
    throw Error(Code::kInvalid, fmt::format("{}.{} is not supported by api {}", name, key,
                                            chat ? "chat" : "encode"));
  }
}

}  // namespace

const JsonValue* FindFunction(const JsonValue& tools, std::string_view name) {
  for (const JsonValue& tool : tools.items) {
    const JsonValue* function = tool.Find("function");
    const JsonValue* found = function == nullptr ? nullptr : function->Find("name");
    if (found != nullptr && found->text == name) return function;
  }
  return nullptr;
}

void ApplyEffort(const JsonValue& value, const EffortTable& efforts, ChatRequest* request) {
  const std::optional<int64_t> number = value.AsInteger();
  const std::string name = value.is_string() ? value.text : "";
  if (number && *number >= 1 && *number <= 100) {
    request->effort = static_cast<int>(*number);
  } else if (name == "low") {
    request->effort = efforts.low;
  } else if (name == "high") {
    request->effort = efforts.high;
  } else if (name == "xhigh") {
    request->effort = efforts.xhigh;
  } else if (name == "max") {
    request->effort = efforts.max;
  } else if (name == "none") {
    request->thinking = false;
  } else {
    throw Error(
        Code::kInvalid,
        "reasoning_effort: expected none, low, high, xhigh, max or an integer 1 to 100, found " +
            DumpJson(value));
  }
}

void ApplyKwargs(const JsonValue& kwargs, const EffortTable& efforts, const std::string& name,
                 ChatRequest* request) {
  if (!kwargs.is_object()) throw Error(Code::kInvalid, name + ": expected an object");
  const JsonValue* thinking = kwargs.Find("thinking");
  const JsonValue* enable = kwargs.Find("enable_thinking");
  if (thinking != nullptr && enable != nullptr &&
      AsBool(*thinking, "thinking") != AsBool(*enable, "enable_thinking")) {
    throw Error(Code::kInvalid, name + ": thinking and enable_thinking contradict each other");
  }
  for (size_t i = 0; i < kwargs.keys.size(); ++i) {
    if (kwargs.items[i].is_null() || kwargs.keys[i] == "reasoning_effort") continue;
    ApplyKwarg(kwargs.keys[i], kwargs.items[i], name, request);
  }
  // Last: effort "none" wins over thinking = true.
  const JsonValue* effort = kwargs.Find("reasoning_effort");
  if (effort != nullptr) ApplyEffort(*effort, efforts, request);
}

ChatRequest ParseChatRequest(const JsonValue& json, const EffortTable& efforts) {
  ChatRequest request;
  request.effort = efforts.standard;
  if (json.is_array()) {
    request.messages = json;
    return request;
  }
  const JsonValue* messages = json.Find("messages");
  if (messages == nullptr) {
    throw Error(Code::kInvalid,
                "chat request: expected a list of messages or an object with the key messages");
  }
  request.messages = *messages;
  if (const JsonValue* api = json.Find("api")) {
    if (!api->is_string() || (api->text != "chat" && api->text != "encode")) {
      throw Error(Code::kInvalid, "api: expected \"chat\" or \"encode\", found " + DumpJson(*api));
    }
    request.api = api->text == "chat" ? ChatRequest::Api::kChat : ChatRequest::Api::kEncode;
  }
  if (const JsonValue* tools = json.Find("tools")) request.tools = *tools;
  if (const JsonValue* kwargs = json.Find("kwargs"))
    ApplyKwargs(*kwargs, efforts, "kwargs", &request);
  return request;
}

}  // namespace deepinfer
