// The messages of a chat request, read from JSON and brought into the form that the renderer walks
// over.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chat/request.h"

namespace deepinfer {

struct ContentPart {
  int image = -1;    // number of the image in the request, or -1: text
  std::string text;  // from the client
};
using Content = std::vector<ContentPart>;

// One piece of a user turn: the user's own content, or what a tool answered.
struct UserBlock {
  bool tool_result = false;
  std::string tool_call_id;
  Content content;
};

struct ToolCall {
  std::string id, name;
  JsonValue arguments;  // object
};

struct Message {
  enum class Role { kSystem, kDeveloper, kUser, kAssistant, kReminder };
  Role role;
  Content content;                // all roles but kUser
  std::vector<UserBlock> blocks;  // kUser
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  JsonValue tools;            // array of tools declared here, or null
  JsonValue response_format;  // or null
  std::string task;           // empty, action, query, authority, domain, title or read_url
  bool without_eos = false;   // key wo_eos
  bool in_context = false;    // already rendered, only looked at

  bool OnlyToolResults() const;
};

// Reads the messages and normalises them (spec 07 section 7, steps 1 to 3): tools go to the first
// system message, tool messages become blocks of user messages, neighbouring user messages are
// merged, tool results are put in the order of their calls. Messages of request.context come first.
// Throws Error(kInvalid) naming the message and the field, also when a text of the client contains
// the spelling of the image token.
std::vector<Message> NormalizeMessages(const ChatRequest& request);

}  // namespace deepinfer
