#include "server/api_request.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"

namespace deepinfer {
namespace {

constexpr int64_t kLegacyMaxTokens = 16;  // of /v1/completions, when a request does not say

std::vector<std::string> ReadStops(JsonFields& fields) {
  const JsonValue* stop = fields.Take("stop");
  if (stop == nullptr) return {};
  if (stop->is_string()) return {stop->text};
  std::vector<std::string> texts;
  for (const JsonValue& item : stop->items) {
    if (!stop->is_array() || !item.is_string()) break;
    texts.push_back(item.text);
  }
  if (!stop->is_array() || texts.size() != stop->items.size() || std::ssize(texts) > kMaxStops)
    fields.Refuse("stop", fmt::format("a string or a list of up to {} strings", kMaxStops), *stop);
  return texts;
}

// {"token id": bias}
std::vector<std::pair<TokenId, float>> ReadBias(JsonFields& fields) {
  std::vector<std::pair<TokenId, float>> bias;
  const JsonValue* object = fields.TakeObject("logit_bias");
  if (object == nullptr) return bias;
  JsonFields entries(*object, "logit_bias.");
  for (const std::string& key : object->keys) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size())
      fields.Refuse("logit_bias", "token ids as keys", *object);
    if (const std::optional<double> value = entries.TakeReal(key))
      bias.emplace_back(id, static_cast<float>(*value));
  }
  return bias;
}

void ReadSampling(JsonFields& fields, SamplingParams* s) {
  const auto real = [&](const char* name, float* value) {
    if (const std::optional<double> v = fields.TakeReal(name)) *value = static_cast<float>(*v);
  };
  real("temperature", &s->temperature);
  real("top_p", &s->top_p);
  real("min_p", &s->min_p);
  real("repetition_penalty", &s->repetition_penalty);
  real("frequency_penalty", &s->frequency_penalty);
  real("presence_penalty", &s->presence_penalty);
  s->top_k = static_cast<int>(fields.TakeInteger("top_k").value_or(s->top_k));
  s->min_tokens = static_cast<int>(fields.TakeInteger("min_tokens", 0).value_or(0));
  s->logit_bias = ReadBias(fields);
  if (std::optional<std::vector<TokenId>> ids = fields.TakeIds("stop_token_ids")) {
    if (std::ssize(*ids) > kMaxStops) {
      throw Error(Code::kInvalid, fmt::format("stop_token_ids: expected up to {} ids, found {}",
                                              kMaxStops, ids->size()));
    }
    s->stop_ids = std::move(*ids);
  }
}

void ReadStream(JsonFields& fields, ApiRequest* api) {
  api->stream = fields.TakeBool("stream").value_or(false);
  const JsonValue* options = fields.TakeObject("stream_options");
  if (options == nullptr) return;
  if (!api->stream) fields.Refuse("stream_options", "stream: true beside it", *options);
  JsonFields inner(*options, "stream_options.");
  api->include_usage = inner.TakeBool("include_usage").value_or(false);
  inner.RefuseRest();
}

ApiRequest ReadShared(JsonFields& fields, const SamplingParams& defaults) {
  ApiRequest api;
  api.model = fields.TakeString("model").value_or("");
  api.user = fields.TakeString("user").value_or("");
  api.engine.sampling = defaults;
  ReadSampling(fields, &api.engine.sampling);
  // Negative seeds are other seeds.
  if (const auto seed = fields.TakeInteger("seed", INT64_MIN, INT64_MAX))
    api.engine.seed = static_cast<uint64_t>(*seed);
  api.engine.stop = ReadStops(fields);
  api.engine.ignore_eos = fields.TakeBool("ignore_eos").value_or(false);
  api.n = fields.TakeInteger("n", 1, kMaxChoices).value_or(1);
  ReadStream(fields, &api);
  return api;
}

void ReadPrompts(JsonFields& fields, CompletionRequest* request) {
  const JsonValue* prompt = fields.Take("prompt");
  if (prompt == nullptr) throw Error(Code::kInvalid, "prompt: expected text, found none");
  const auto is_ids = [](const JsonValue& v) {
    return v.is_array() && !v.items.empty() && v.items[0].kind == JsonValue::Kind::kNumber;
  };
  if (prompt->is_string()) {
    request->prompts.emplace_back(prompt->text);
  } else if (is_ids(*prompt)) {
    request->prompts.emplace_back(ReadTokenIds(*prompt, "prompt"));
  } else if (prompt->is_array()) {
    for (const JsonValue& item : prompt->items) {
      if (item.is_string()) {
        request->prompts.emplace_back(item.text);
      } else if (is_ids(item)) {
        request->prompts.emplace_back(ReadTokenIds(item, "prompt"));
      } else {
        fields.Refuse("prompt", "texts or lists of token ids", item);
      }
    }
  }
  if (request->prompts.empty())
    fields.Refuse("prompt", "text, a list of token ids, or a list of either", *prompt);
  const int64_t choices = std::ssize(request->prompts) * request->api.n;
  if (choices > kMaxChoices) {
    throw Error(Code::kInvalid, fmt::format("n: expected at most {} answers of one request, "
                                            "found {} prompts x {}",
                                            kMaxChoices, request->prompts.size(), request->api.n));
  }
}

int64_t ReadChatMaxTokens(JsonFields& fields) {
  const auto old_name = fields.TakeInteger("max_tokens", 1);
  const auto new_name = fields.TakeInteger("max_completion_tokens", 1);
  if (old_name && new_name && *old_name != *new_name) {
    throw Error(Code::kInvalid, fmt::format("max_completion_tokens: expected the value of "
                                            "max_tokens, {}, found {}",
                                            *old_name, *new_name));
  }
  return new_name.value_or(old_name.value_or(0));
}

// reasoning_effort, thinking and chat_template_kwargs (spec 07 section 6).
void ReadThinking(JsonFields& fields, ChatRequest* chat) {
  JsonValue object;
  object.kind = JsonValue::Kind::kObject;
  const auto add = [&](const std::string& key, const JsonValue& value) {
    for (size_t i = 0; i < object.keys.size(); ++i) {
      if (object.keys[i] != key) continue;
      if (DumpJson(object.items[i]) == DumpJson(value)) return;
      throw Error(Code::kInvalid, fmt::format("{}: expected the same value as in "
                                              "chat_template_kwargs, found {} and {}",
                                              key, Shown(value), Shown(object.items[i])));
    }
    object.keys.push_back(key);
    object.items.push_back(value);
  };
  if (const JsonValue* kwargs = fields.TakeObject("chat_template_kwargs")) {
    for (size_t i = 0; i < kwargs->keys.size(); ++i) add(kwargs->keys[i], kwargs->items[i]);
  }
  if (const JsonValue* effort = fields.Take("reasoning_effort")) add("reasoning_effort", *effort);
  if (const JsonValue* thinking = fields.Take("thinking")) {
    // Also as the official service spells it: {"type": "enabled"}.
    const JsonValue* type = thinking->Find("type");
    JsonValue flag;
    flag.kind = JsonValue::Kind::kBool;
    if (thinking->kind == JsonValue::Kind::kBool) {
      flag.boolean = thinking->boolean;
    } else if (type != nullptr && thinking->keys.size() == 1 && type->is_string() &&
               (type->text == "enabled" || type->text == "disabled")) {
      flag.boolean = type->text == "enabled";
    } else {
      fields.Refuse("thinking", "true, false or {\"type\": \"enabled\" or \"disabled\"}",
                    *thinking);
    }
    add("thinking", flag);
  }
  ApplyKwargs(object, {}, "chat_template_kwargs", chat);
}

void ReadToolChoice(JsonFields& fields, ChatCompletionRequest* request) {
  const JsonValue& tools = request->chat.tools;
  const bool declared = !tools.items.empty();
  request->may_call = declared;
  request->parallel_tool_calls = fields.TakeBool("parallel_tool_calls").value_or(true);
  const JsonValue* choice = fields.Take("tool_choice");
  if (choice == nullptr) return;
  const std::string name = choice->is_string() ? choice->text : "";
  if (name == "none") {
    request->may_call = false;
    return;
  }
  if (!declared) fields.Refuse("tool_choice", "tools beside it", *choice);
  if (name == "auto") return;
  // {"type": "function", "function": {"name": ...}}
  std::optional<std::string> tool;
  if (choice->is_object()) {
    JsonFields fields_of_choice(*choice, "tool_choice.");
    if (fields_of_choice.TakeString("type") != "function")
      fields.Refuse("tool_choice", "type \"function\" and the name of a declared tool", *choice);
    if (const JsonValue* function = fields_of_choice.TakeObject("function")) {
      JsonFields fields_of_function(*function, "tool_choice.function.");
      tool = fields_of_function.TakeString("name");
      fields_of_function.RefuseRest();
    }
    fields_of_choice.RefuseRest();
  }
  if (name != "required" && !tool)
    fields.Refuse("tool_choice", "none, auto, required or the name of a function", *choice);
  request->form = {AnswerForm::Kind::kCalls, "", DumpJson(tools), tool.value_or(""),
                   request->parallel_tool_calls};
  if (tool && FindFunction(tools, *tool) == nullptr)
    fields.Refuse("tool_choice", "the name of a declared tool", *choice);
}

void ReadResponseFormat(JsonFields& fields, ChatCompletionRequest* request) {
  const JsonValue* format = fields.TakeObject("response_format");
  if (format == nullptr) return;
  JsonFields inner(*format, "response_format.");
  const std::string type = inner.TakeString("type").value_or("");
  AnswerForm form;
  if (type == "json_object") {
    form.kind = AnswerForm::Kind::kObject;
  } else if (type == "json_schema") {
    const JsonValue* object = inner.TakeObject("json_schema");
    if (object == nullptr)
      throw Error(Code::kInvalid, "response_format.json_schema: expected an object, found none");
    JsonFields parts(*object, "response_format.json_schema.");
    parts.TakeString("name");
    parts.TakeString("description");
    parts.TakeBool("strict");  // what is not strict is kept to as well
    const JsonValue* schema = parts.Take("schema");
    if (schema == nullptr)
      throw Error(Code::kInvalid, "response_format.json_schema.schema: expected one, found none");
    parts.RefuseRest();
    form = {AnswerForm::Kind::kSchema, DumpJson(*schema)};
  } else if (type != "text") {
    inner.Refuse("type", "text, json_object or json_schema", *format);
  }
  inner.RefuseRest();
  if (form.kind == AnswerForm::Kind::kFree) return;
  if (request->form.kind == AnswerForm::Kind::kCalls) {
    throw Error(Code::kUnsupported,
                "response_format: not supported beside a tool_choice that forces a call, whose "
                "answer has no content");
  }
  request->form = std::move(form);
  if (!request->may_call) return;
  request->form.tools = DumpJson(request->chat.tools);
  request->form.several_calls = request->parallel_tool_calls;
}

}  // namespace

ChatRequest TakeChat(JsonFields& fields) {
  ChatRequest chat;
  const JsonValue* messages = fields.Take("messages");
  if (messages == nullptr || !messages->is_array() || messages->items.empty())
    throw Error(Code::kInvalid, "messages: expected a list of messages, found none");
  chat.messages = *messages;
  if (const JsonValue* tools = fields.Take("tools")) {
    if (!tools->is_array()) fields.Refuse("tools", "a list", *tools);
    chat.tools = *tools;
  }
  ReadThinking(fields, &chat);
  return chat;
}

ChatPrompt RenderText(const ChatRequest& request) {
  ChatPrompt prompt = RenderChat(request);
  if (!prompt.image_order.empty())
    throw Error(Code::kUnsupported, "messages: images are not supported");
  return prompt;
}

CompletionRequest ParseCompletionRequest(const JsonValue& json, const SamplingParams& defaults) {
  JsonFields fields(json);
  CompletionRequest request;
  request.api = ReadShared(fields, defaults);
  Request& engine = request.api.engine;
  engine.max_tokens = fields.TakeInteger("max_tokens", 0).value_or(kLegacyMaxTokens);
  engine.prompt_only = engine.max_tokens == 0;
  if (const auto n = fields.TakeInteger("logprobs", 0)) engine.logprobs = static_cast<int>(*n);
  request.echo = fields.TakeBool("echo").value_or(false);
  request.add_special_tokens = fields.TakeBool("add_special_tokens").value_or(true);
  ReadPrompts(fields, &request);
  fields.RefuseRest();
  if (engine.prompt_only && !request.echo)
    throw Error(Code::kInvalid, "max_tokens: expected 1 or more, or echo: true beside it, found 0");
  engine.prompt_logprobs = request.echo && engine.logprobs;
  return request;
}

ChatCompletionRequest ParseChatCompletionRequest(const JsonValue& json,
                                                 const SamplingParams& defaults) {
  JsonFields fields(json);
  ChatCompletionRequest request;
  request.api = ReadShared(fields, defaults);
  Request& engine = request.api.engine;
  engine.max_tokens = ReadChatMaxTokens(fields);
  const bool logprobs = fields.TakeBool("logprobs").value_or(false);
  const auto top = fields.TakeInteger("top_logprobs", 0);
  if (top && *top > 0 && !logprobs)
    throw Error(Code::kInvalid, "top_logprobs: expected logprobs: true beside it, found none");
  if (logprobs) engine.logprobs = static_cast<int>(top.value_or(0));

  request.chat = TakeChat(fields);
  ReadToolChoice(fields, &request);
  ReadResponseFormat(fields, &request);
  fields.RefuseRest();
  return request;
}

}  // namespace deepinfer
