#include "chat/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "chat/protocol.h"

namespace deepinfer {
namespace {

[[noreturn]] void Fail(const std::string& what) { throw Error(Code::kInvalid, what); }

std::string OptionalString(const JsonValue& object, const char* key, const std::string& path) {
  const JsonValue* value = object.Find(key);
  if (value == nullptr) return {};
  if (!value->is_string())
    Fail(fmt::format("{}.{}: expected a string, found {}", path, key, DumpJson(*value)));
  return value->text;
}

// An image stands for itself in the prompt, so its token must not come from text.
void RefuseImageToken(const std::string& text, const std::string& path) {
  if (text.find(kImageToken) != std::string::npos) {
    Fail(fmt::format("{}: the text contains the reserved token {}", path, kImageToken));
  }
}

// Whatever is neither known nor null is refused by name: nothing is accepted and ignored.
void RefuseOthers(const JsonValue& object, const std::string& path,
                  const std::vector<std::string_view>& known) {
  for (size_t i = 0; i < object.keys.size(); ++i) {
    if (object.items[i].is_null() || std::ranges::find(known, object.keys[i]) != known.end())
      continue;
    throw Error(Code::kUnsupported, fmt::format("{}.{}: this field is not supported", path,
                                                object.keys[i].substr(0, 80)));
  }
}

// What a message of a role may say, besides what all may.
struct RoleForm {
  std::string_view name;
  Message::Role role;
  std::vector<std::string_view> keys;
};
const std::vector<std::string_view> kAllMaySay = {"role", "content", "task"};

const RoleForm& FormOf(std::string_view role, const std::string& path) {
  using Role = Message::Role;
  static const std::vector<RoleForm> kForms = {
      {"system", Role::kSystem, {"tools", "response_format"}},
      {"developer", Role::kDeveloper, {"tools", "response_format"}},
      {"user", Role::kUser, {}},
      {"assistant", Role::kAssistant, {"reasoning", "reasoning_content", "tool_calls", "wo_eos"}},
      {"tool", Role::kUser, {"tool_call_id", "name"}},
      {"latest_reminder", Role::kReminder, {}}};
  const auto form = std::ranges::find(kForms, role, &RoleForm::name);
  if (form != kForms.end()) return *form;
  Fail(
      fmt::format("{}.role: expected system, developer, user, assistant, tool or latest_reminder, "
                  "found \"{}\"",
                  path, role));
}

class Reader {
 public:
  explicit Reader(ChatRequest::Api api) : api_(api) {}

  std::vector<Message> Read(const JsonValue& list, const char* name) {
    if (!list.is_array()) Fail(fmt::format("{}: expected a list", name));
    std::vector<Message> messages;
    for (size_t i = 0; i < list.items.size(); ++i) {
      ReadMessage(list.items[i], fmt::format("{}[{}]", name, i), &messages);
    }
    return messages;
  }

 private:
  void ReadMessage(const JsonValue& json, const std::string& path, std::vector<Message>* messages) {
    if (!json.is_object()) Fail(path + ": expected an object");
    const std::string role = OptionalString(json, "role", path);
    const RoleForm& form = FormOf(role, path);
    std::vector<std::string_view> known = kAllMaySay;
    known.insert(known.end(), form.keys.begin(), form.keys.end());
    RefuseOthers(json, path, known);
    Message message;
    message.role = form.role;
    message.content = ReadContent(json, path);
    if (message.role == Message::Role::kAssistant) ReadAssistant(json, path, &message);
    message.tools = ReadTools(json.Find("tools"), path + ".tools");
    if (const JsonValue* format = json.Find("response_format")) message.response_format = *format;
    message.task = ReadTask(json, path);
    if (message.role == Message::Role::kUser) {
      const bool is_result = role == "tool";
      if (is_result) CheckName(json, path);
      message.blocks.push_back({is_result,
                                is_result ? OptionalString(json, "tool_call_id", path) : "",
                                std::exchange(message.content, {})});
      // Neighbours become one turn; what else the later message says is lost.
      if (!messages->empty() && messages->back().role == Message::Role::kUser &&
          messages->back().task.empty()) {
        messages->back().blocks.push_back(std::move(message.blocks[0]));
        return;
      }
    }
    messages->push_back(std::move(message));
  }

  // The name of a tool message is that of the call that it answers.
  void CheckName(const JsonValue& json, const std::string& path) const {
    const std::string name = OptionalString(json, "name", path);
    const auto call = called_.find(OptionalString(json, "tool_call_id", path));
    if (name.empty() || (call != called_.end() && call->second == name)) return;
    Fail(fmt::format(
        "{}.name: expected the name of the call that tool_call_id names{}, found \"{}\"", path,
        call == called_.end() ? "" : ", \"" + call->second + "\"", name));
  }

  Content ReadContent(const JsonValue& json, const std::string& message_path) {
    const JsonValue* content = json.Find("content");
    const std::string path = message_path + ".content";
    if (content == nullptr) return {};
    if (content->is_string()) {
      RefuseImageToken(content->text, path);
      return {{-1, content->text}};
    }
    if (!content->is_array()) Fail(path + ": expected a string or a list of parts");
    Content parts;
    for (size_t i = 0; i < content->items.size(); ++i) {
      parts.push_back(ReadPart(content->items[i], fmt::format("{}[{}]", path, i)));
    }
    return parts;
  }

  ContentPart ReadPart(const JsonValue& json, const std::string& path) {
    if (!json.is_object()) Fail(path + ": expected an object");
    const std::string type = OptionalString(json, "type", path);
    if (type == "text") {
      const std::string text = OptionalString(json, "text", path);
      RefuseOthers(json, path, {"type", "text"});
      RefuseImageToken(text, path + ".text");
      return {-1, text};
    }
    if (type == "image_url") return {n_images_++, {}};
    if (api_ == ChatRequest::Api::kEncode && !type.empty())
      return {-1, "[Unsupported " + type + "]"};
    Fail(fmt::format("{}.type: expected text or image_url, found \"{}\"", path, type));
  }

  void ReadAssistant(const JsonValue& json, const std::string& path, Message* message) {
    const char* reasoning_key =
        json.Find("reasoning") != nullptr ? "reasoning" : "reasoning_content";
    message->reasoning = OptionalString(json, reasoning_key, path);
    RefuseImageToken(message->reasoning, path + "." + reasoning_key);
    if (const JsonValue* without_eos = json.Find("wo_eos")) {
      if (without_eos->kind != JsonValue::Kind::kBool)
        Fail(path + ".wo_eos: expected true or false");
      message->without_eos = without_eos->boolean;
    }
    const JsonValue* calls = json.Find("tool_calls");
    if (calls == nullptr) return;
    if (!calls->is_array()) Fail(path + ".tool_calls: expected a list");
    for (size_t i = 0; i < calls->items.size(); ++i) {
      message->tool_calls.push_back(
          ReadCall(calls->items[i], i, fmt::format("{}.tool_calls[{}]", path, i)));
      const ToolCall& call = message->tool_calls.back();
      called_[call.id] = call.name;
    }
  }

  // The calls of a stream also say their place.
  static ToolCall ReadCall(const JsonValue& json, size_t place, const std::string& path) {
    const JsonValue* function = json.Find("function");
    const JsonValue* name = function == nullptr ? nullptr : function->Find("name");
    if (name == nullptr || !name->is_string()) Fail(path + ".function.name: expected a string");
    RefuseOthers(json, path, {"id", "type", "function", "index"});
    RefuseOthers(*function, path + ".function", {"name", "arguments"});
    CheckType(json, path);
    const JsonValue* index = json.Find("index");
    if (index != nullptr && index->AsInteger() != static_cast<int64_t>(place))
      Fail(fmt::format("{}.index: expected {}, found {}", path, place, DumpJson(*index)));
    return {OptionalString(json, "id", path), name->text,
            ReadArguments(function->Find("arguments"))};
  }

  static void CheckType(const JsonValue& json, const std::string& path) {
    const JsonValue* type = json.Find("type");
    if (type == nullptr || (type->is_string() && type->text == "function")) return;
    Fail(fmt::format("{}.type: expected \"function\", found {}", path, DumpJson(*type)));
  }

  // An object, or JSON text of one, encoded once or twice; absent means none. Anything else is one
  // parameter "arguments".
  static JsonValue ReadArguments(const JsonValue* json) {
    JsonValue arguments;
    arguments.kind = JsonValue::Kind::kObject;
    if (json == nullptr) return arguments;
    JsonValue value = *json;
    for (int level = 0; level < 2 && value.is_string(); ++level) {
      std::optional<JsonValue> inner = TryParseJson(value.text);
      if (!inner) break;
      value = std::move(*inner);
    }
    if (value.is_object()) return value;
    arguments.keys.push_back("arguments");
    arguments.items.push_back(*json);
    return arguments;
  }

 public:
  static JsonValue ReadTools(const JsonValue* json, const std::string& path) {
    if (json == nullptr || json->is_null()) return {};
    if (!json->is_array()) Fail(path + ": expected a list");
    for (size_t i = 0; i < json->items.size(); ++i) {
      const JsonValue* function = json->items[i].Find("function");
      if (function == nullptr || !function->is_object()) {
        Fail(fmt::format("{}[{}].function: expected an object", path, i));
      }
      const std::string tool = fmt::format("{}[{}]", path, i);
      RefuseOthers(json->items[i], tool, {"type", "function"});
      CheckType(json->items[i], tool);
    }
    return json->items.empty() ? JsonValue() : *json;
  }

 private:
  static std::string ReadTask(const JsonValue& json, const std::string& path) {
    const std::string task = OptionalString(json, "task", path);
    for (const char* known : {"", "action", "query", "authority", "domain", "title", "read_url"}) {
      if (task == known) return task;
    }
    Fail(fmt::format(
        "{}.task: expected action, query, authority, domain, title or read_url, found \"{}\"", path,
        task));
  }

  ChatRequest::Api api_;
  int n_images_ = 0;
  std::unordered_map<std::string, std::string> called_;  // tools by the ids of calls so far
};

// Puts the tool results of every user message in the order of the calls of the latest assistant
// message that made any; a result of an unknown call counts as the first call's. Text blocks keep
// their places.
void SortToolResults(std::vector<Message>* messages) {
  std::unordered_map<std::string, size_t> order;
  for (Message& message : *messages) {
    if (!message.tool_calls.empty()) {
      order.clear();
      for (size_t i = 0; i < message.tool_calls.size(); ++i) order[message.tool_calls[i].id] = i;
    }
    std::vector<UserBlock> results;
    for (const UserBlock& block : message.blocks) {
      if (block.tool_result) results.push_back(block);
    }
    const auto place = [&](const UserBlock& block) {
      const auto found = order.find(block.tool_call_id);
      return found == order.end() ? 0 : found->second;
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](const UserBlock& a, const UserBlock& b) { return place(a) < place(b); });
    size_t next = 0;
    for (UserBlock& block : message.blocks) {
      if (block.tool_result) block = std::move(results[next++]);
    }
  }
}

void AttachTools(JsonValue tools, std::vector<Message>* messages) {
  auto first_system = std::find_if(messages->begin(), messages->end(), [](const Message& m) {
    return m.role == Message::Role::kSystem;
  });
  if (first_system == messages->end()) {
    Message system;
    system.role = Message::Role::kSystem;
    first_system = messages->insert(messages->begin(), std::move(system));
  }
  first_system->tools = std::move(tools);
}

}  // namespace

bool Message::OnlyToolResults() const {
  return !blocks.empty() && std::all_of(blocks.begin(), blocks.end(),
                                        [](const UserBlock& b) { return b.tool_result; });
}

std::vector<Message> NormalizeMessages(const ChatRequest& request) {
  Reader reader(request.api);
  std::vector<Message> added = reader.Read(request.messages, "messages");
  JsonValue tools = Reader::ReadTools(&request.tools, "tools");
  if (!tools.is_null()) AttachTools(std::move(tools), &added);
  std::vector<Message> all;
  if (!request.context.is_null()) {
    all = Reader(request.api).Read(request.context, "kwargs.context");
    for (Message& message : all) message.in_context = true;
  }
  std::move(added.begin(), added.end(), std::back_inserter(all));
  SortToolResults(&all);
  return all;
}

}  // namespace deepinfer
