#include "server/reply_writers.h"

#include <iterator>

#include "chat/protocol.h"

namespace deepinfer {
namespace {

constexpr TokenId kNone = -1;

template <class T>
void Append(const std::vector<T>& more, std::vector<T>* list) {
  list->insert(list->end(), more.begin(), more.end());
}

}  // namespace

std::string Event(const std::string& data) { return "data: " + data + "\n\n"; }

CompletionWriter::CompletionWriter(ReplyHead head, const Tokenizer& tokenizer,
                                   std::vector<std::string> echo,
                                   const std::vector<Request>& requests)
    : head_(std::move(head)), tokenizer_(tokenizer) {
  for (size_t i = 0; i < requests.size(); ++i) {
    CompletionPart part{.index = static_cast<int64_t>(i),
                        .text = echo.empty() ? "" : std::move(echo[i]),
                        .logprobs = {},
                        .has_logprobs = requests[i].logprobs.has_value()};
    if (requests[i].prompt_logprobs) {
      part.first_token = requests[i].prompt[0];
      const std::string_view first = tokenizer.TokenBytes(*part.first_token);
      part.first_characters = part.text.starts_with(first) ? CountCharacters(first) : 0;
    }
    const int64_t characters = part.first_characters;
    choices_.push_back({std::move(part), characters});
  }
}

std::string CompletionWriter::Chunk(CompletionPart part) const {
  return Event(CompletionReply(head_, {std::move(part)}, nullptr, tokenizer_));
}

std::string CompletionWriter::Begin() const {
  std::string events;
  for (const Choice& choice : choices_) {
    if (!choice.whole.text.empty() || choice.whole.first_token) events += Chunk(choice.whole);
  }
  return events;
}

std::string CompletionWriter::Add(int64_t index, const Delta& delta, Usage*) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  CompletionPart& whole = choice.whole;
  CompletionPart part{.index = index,
                      .text = delta.text,
                      .logprobs = delta.prompt_logprobs,
                      .has_logprobs = whole.has_logprobs,
                      .text_offset = choice.token_characters};
  Append(delta.logprobs, &part.logprobs);
  for (const TokenLogprob& t : part.logprobs)
    choice.token_characters += CountCharacters(tokenizer_.TokenBytes(t.id));
  if (delta.finish) whole.finish_reason = part.finish_reason = FinishReasonName(*delta.finish);
  whole.text += part.text;
  Append(part.logprobs, &whole.logprobs);
  const bool silent = part.text.empty() && part.logprobs.empty() && !delta.finish;
  return silent ? "" : Chunk(std::move(part));
}

std::string CompletionWriter::Whole(const Usage& usage) const {
  std::vector<CompletionPart> parts;
  for (const Choice& choice : choices_) parts.push_back(choice.whole);
  return CompletionReply(head_, parts, &usage, tokenizer_);
}

std::string CompletionWriter::UsageChunk(const Usage& usage) const {
  return Event(CompletionReply(head_, {}, &usage, tokenizer_));
}

ChatWriter::ChatWriter(ReplyHead head, const Tokenizer& tokenizer,
                       const ChatCompletionRequest& request)
    : head_(std::move(head)),
      tokenizer_(tokenizer),
      parallel_calls_(request.parallel_tool_calls),
      think_open_(tokenizer.IdOf(kThinkOpen).value_or(kNone)),
      think_close_(tokenizer.IdOf(kThinkClose).value_or(kNone)) {
  OutputParserOptions options;
  options.thinking = request.chat.thinking;
  options.tools = request.chat.tools;
  options.drop_calls = !request.may_call;
  options.tags_are_tokens = true;
  options.calls_in_reasoning = request.form.kind == AnswerForm::Kind::kFree;
  const auto shared = std::make_shared<const OutputParserOptions>(std::move(options));
  for (int64_t i = 0; i < request.api.n; ++i) {
    choices_.push_back({std::make_unique<OutputParser>(shared), request.chat.thinking});
    choices_.back().whole.index = i;
    choices_.back().whole.has_logprobs = request.api.engine.logprobs.has_value();
  }
}

std::string ChatWriter::Chunk(ChatPart part) const {
  std::vector<ChatPart> parts;
  parts.push_back(std::move(part));
  return Event(ChatReply(head_, parts, nullptr, /*chunk=*/true, tokenizer_));
}

std::string ChatWriter::Begin() const {
  std::string events;
  for (const Choice& choice : choices_) {
    ChatPart part;
    part.index = choice.whole.index;
    part.first = true;
    events += Chunk(std::move(part));
  }
  return events;
}

// Feeds the parser and counts tokens of reasoning.
OutputDelta ChatWriter::Parse(Choice* choice, const Delta& delta, Usage* usage) const {
  std::vector<int64_t> tags;
  for (size_t i = 0; i < delta.token_ids.size(); ++i) {
    const TokenId id = delta.token_ids[i];
    if (choice->reasons) ++usage->reasoning_tokens;
    if (id != think_open_ && id != think_close_) continue;
    choice->reasons = id == think_open_;
    const std::string_view tag = id == think_open_ ? kThinkOpen : kThinkClose;
    tags.push_back(delta.text_ends[i] - std::ssize(tag));
  }
  OutputDelta news = choice->parser->Feed(delta.text, tags);
  if (!delta.finish) return news;
  OutputDelta last = choice->parser->Finish();
  news.reasoning += last.reasoning;
  news.content += last.content;
  std::move(last.calls.begin(), last.calls.end(), std::back_inserter(news.calls));
  return news;
}

// What a chunk says about them. The whole message gets them too, calls with all their arguments.
ChatPart ChatWriter::Take(Choice* choice, const OutputDelta& news) const {
  ChatPart part;
  ChatPart& whole = choice->whole;
  part.index = whole.index;
  part.has_logprobs = whole.has_logprobs;
  part.reasoning = news.reasoning;
  part.content = news.content;
  whole.reasoning += news.reasoning;
  whole.content += news.content;
  for (const CallDelta& call : news.calls) {
    if (call.index > 0 && !parallel_calls_) continue;
    ToolCallPart piece{call.index, "", call.name, call.arguments};
    if (!call.name.empty()) {
      piece.id = "call_" + RandomHex(24);
      whole.tool_calls.push_back({call.index, piece.id, call.name, ""});
    }
    if (call.whole) whole.tool_calls.back().arguments = *call.whole;
    if (!piece.id.empty() || !piece.arguments.empty()) part.tool_calls.push_back(std::move(piece));
  }
  return part;
}

std::string ChatWriter::Add(int64_t index, const Delta& delta, Usage* usage) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  ChatPart part = Take(&choice, Parse(&choice, delta, usage));
  part.logprobs = delta.logprobs;
  Append(delta.logprobs, &choice.whole.logprobs);
  if (delta.finish) {
    const bool calls = *delta.finish == FinishReason::kStop && !choice.whole.tool_calls.empty();
    part.finish_reason = calls ? "tool_calls" : FinishReasonName(*delta.finish);
    choice.whole.finish_reason = part.finish_reason;
  }
  const bool silent = part.reasoning.empty() && part.content.empty() && part.tool_calls.empty() &&
                      part.logprobs.empty() && !delta.finish;
  return silent ? "" : Chunk(std::move(part));
}

std::string ChatWriter::Whole(const Usage& usage) const {
  std::vector<ChatPart> parts;
  for (const Choice& choice : choices_) parts.push_back(choice.whole);
  return ChatReply(head_, parts, &usage, /*chunk=*/false, tokenizer_);
}

std::string ChatWriter::UsageChunk(const Usage& usage) const {
  return Event(ChatReply(head_, {}, &usage, /*chunk=*/true, tokenizer_));
}

}  // namespace deepinfer
