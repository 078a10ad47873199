#include "chat/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "chat/message.h"
#include "chat/protocol.h"

namespace deepinfer {
namespace {

using Role = Message::Role;
constexpr std::string_view kGap = "\n\n";  // between parts, blocks and sections

class Renderer {
 public:
  explicit Renderer(const ChatRequest& request)
      : request_(request), messages_(NormalizeMessages(request)) {}

  ChatPrompt Run() {
    const bool tools_declared = std::any_of(messages_.begin(), messages_.end(),
                                            [](const Message& m) { return !m.tools.is_null(); });
    drop_ = request_.drop_thinking && !tools_declared;
    if (request_.thinking && drop_) RemoveEarlierDevelopers();
    last_user_ = LastUser();

    if (request_.add_bos && request_.context.is_null()) Token(kBosToken);
    for (int i = 0; i < Count(); ++i) {
      if (messages_[i].in_context) continue;
      if (i == 0 && (request_.thinking || messages_[i].role == Role::kSystem)) Token(kSystemToken);
      if (i == 0 && request_.thinking)
        Trusted(Filled(kEffortLine, "{n}", std::to_string(request_.effort)));
      Body(i);
      Transition(i);
    }
    return std::move(prompt_);
  }

 private:
  int Count() const { return static_cast<int>(messages_.size()); }

  // ---- normalisation that needs the mode (spec 07 section 7, steps 4 to 6) ----

  // Index of the last message that asks something; -1 when none does.
  int LastUser() const {
    for (int i = Count() - 1; i >= 0; --i) {
      const Message& m = messages_[i];
      if (m.role == Role::kDeveloper || (m.role == Role::kSystem && i > 0)) return i;
      if (m.role == Role::kUser && !m.OnlyToolResults()) return i;
    }
    return -1;
  }

  void RemoveEarlierDevelopers() {
    const int last_user = LastUser();
    if (last_user < 0) return;
    const auto end = messages_.begin() + last_user;
    messages_.erase(std::remove_if(messages_.begin(), end,
                                   [](const Message& m) { return m.role == Role::kDeveloper; }),
                    end);
  }

  // ---- output ----

  void Append(TextSpan::Kind kind, std::string_view text) {
    if (text.empty()) return;
    std::vector<TextSpan>& spans = prompt_.spans;
    if (kind != TextSpan::Kind::kToken && !spans.empty() && spans.back().kind == kind) {
      spans.back().text += text;
    } else {
      spans.push_back({kind, std::string(text)});
    }
  }
  void Token(std::string_view text) { Append(TextSpan::Kind::kToken, text); }
  void Trusted(std::string_view text) { Append(TextSpan::Kind::kTrusted, text); }
  void Plain(std::string_view text) { Append(TextSpan::Kind::kPlain, text); }

  static std::string Filled(std::string_view form, std::string_view mark, std::string_view value) {
    std::string text(form);
    return text.replace(text.find(mark), mark.size(), value);
  }

  // ---- bodies ----

  void Body(int i) {
    const Message& m = messages_[i];
    switch (m.role) {
      case Role::kSystem:
        if (i > 0) Token(kSystemToken);
        Parts(m.content);
        Sections(m);
        return;
      case Role::kDeveloper:
        if (std::all_of(m.content.begin(), m.content.end(), [](const ContentPart& part) {
              return part.image < 0 && part.text.empty();
            })) {
          throw Error(Code::kInvalid, "developer message: the content must not be empty");
        }
        Token(kUserToken);
        Parts(m.content);
        Sections(m);
        return;
      case Role::kUser:
        Token(kUserToken);
        UserBlocks(m);
        return;
      case Role::kReminder:
        Token(kReminderToken);
        Parts(m.content);
        return;
      case Role::kAssistant:
        Assistant(i);
        return;
    }
  }

  void Parts(const Content& content) {
    for (size_t i = 0; i < content.size(); ++i) {
      if (i > 0) Trusted(kGap);
      if (content[i].image >= 0) {
        Token(kImageToken);
        prompt_.image_order.push_back(content[i].image);
      } else {
        Plain(content[i].text);
      }
    }
  }

  void UserBlocks(const Message& m) {
    for (size_t i = 0; i < m.blocks.size(); ++i) {
      if (i > 0) Trusted(kGap);
      if (m.blocks[i].tool_result) Trusted("<tool_result>");
      Parts(m.blocks[i].content);
      if (m.blocks[i].tool_result) Trusted("</tool_result>");
    }
  }

  void Sections(const Message& m) {
    if (!m.tools.is_null()) {
      Trusted(kGap);
      Trusted(kToolsPrefix);
      for (size_t i = 0; i < m.tools.items.size(); ++i) {
        if (i > 0) Trusted("\n");
        Plain(DumpJson(*m.tools.items[i].Find("function")));
      }
      Trusted(kToolsSuffix);
    }
    if (!m.response_format.is_null()) {
      constexpr std::string_view kMark = "{schema}";
      const size_t mark = kResponseFormat.find(kMark);
      Trusted(kGap);
      Trusted(kResponseFormat.substr(0, mark));
      Plain(DumpJson(m.response_format));
      Trusted(kResponseFormat.substr(mark + kMark.size()));
    }
  }

  void Assistant(int i) {
    const Message& m = messages_[i];
    const bool after_task = i > 0 && !messages_[i - 1].task.empty();
    if (request_.thinking && !after_task && (!drop_ || i > last_user_)) {
      Plain(m.reasoning);
      Token(kThinkClose);
    }
    Parts(m.content);
    if (!m.tool_calls.empty()) Calls(m.tool_calls);
    if (!m.without_eos) Token(kEosToken);
  }

  // An opening or closing tag; `inside` follows the token, the caller closes an opening tag that
  // has attributes.
  void Tag(std::string_view bracket, std::string_view inside) {
    Trusted(bracket);
    Token(kDsmlToken);
    Trusted(inside);
  }

  void Calls(const std::vector<ToolCall>& calls) {
    Trusted(kGap);
    Tag("<", " calls>\n");
    for (const ToolCall& call : calls) {
      Tag("<", " invoke name=\"");
      Plain(call.name);
      Trusted("\">\n");
      for (size_t i = 0; i < call.arguments.items.size(); ++i) {
        if (i > 0) Trusted("\n");
        Parameter(call.arguments.keys[i], call.arguments.items[i]);
      }
      Trusted("\n");
      Tag("</", " invoke>\n");
    }
    Tag("</", " calls>");
  }

  void Parameter(std::string_view key, const JsonValue& value) {
    Tag("<", " parameter name=\"");
    Plain(key);
    Trusted(value.is_string() ? "\" string=\"true\">" : "\" string=\"false\">");
    Plain(value.is_string() ? value.text : DumpJson(value));
    Tag("</", " parameter>");
  }

  // ---- what follows a message: the header of the answer, if one comes next ----

  void Transition(int i) {
    const Message& m = messages_[i];
    if (i + 1 < Count() && messages_[i + 1].role != Role::kAssistant &&
        messages_[i + 1].role != Role::kReminder) {
      return;
    }
    if (!m.task.empty() && m.task != "action") {
      Token(fmt::format("<｜{}｜>", m.task));
    } else if (m.task == "action") {
      Token(kAssistantToken);
      Token(request_.thinking ? kThinkOpen : kThinkClose);
      Token("<｜action｜>");
    } else if (m.role == Role::kUser || m.role == Role::kDeveloper ||
               (m.role == Role::kSystem && i > 0)) {
      Token(kAssistantToken);
      Token(request_.thinking && (!drop_ || i >= last_user_) ? kThinkOpen : kThinkClose);
    }
  }

  const ChatRequest& request_;
  std::vector<Message> messages_;
  bool drop_ = false;
  int last_user_ = -1;
  ChatPrompt prompt_;
};

}  // namespace

std::string ChatPrompt::Text() const {
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  return text;
}

ChatPrompt RenderChat(const ChatRequest& request) { return Renderer(request).Run(); }

}  // namespace deepinfer
