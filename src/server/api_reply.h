// The JSON of replies (OpenAI API).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// What is the same in every chunk of a reply.
struct ReplyHead {
  std::string id, model;
  int64_t created;  // seconds since 1970
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, reasoning_tokens = 0;
};

// Of one answer: all of it, or what a chunk adds. Of the pointers, null means the field is null.
struct CompletionPart {
  int64_t index;
  std::string text;
  std::vector<TokenLogprob> logprobs;  // of the tokens, when asked for
  bool has_logprobs = false;
  int64_t text_offset = 0;  // characters in front of this part's tokens (logprobs)
  // Set: the first token of the prompt, in front of `logprobs`; it has none. It stands for so many
  // characters of the text: none when the server put it there.
  std::optional<TokenId> first_token = {};
  int64_t first_characters = 0;
  std::string finish_reason = {};  // empty: null
};

// type is "text_completion"; a chunk of a stream and a whole reply look the same but for the usage.
std::string CompletionReply(const ReplyHead& head, const std::vector<CompletionPart>& choices,
                            const Usage* usage, const Tokenizer& tokenizer);

struct ToolCallPart {
  int64_t index;
  std::string id, name;   // both empty in later chunks of a call
  std::string arguments;  // JSON text, or the next piece of it
};

struct ChatPart {
  int64_t index;
  bool first = false;  // of a stream: says the role
  std::string reasoning, content;
  std::vector<ToolCallPart> tool_calls;
  std::vector<TokenLogprob> logprobs;
  bool has_logprobs = false;
  std::string finish_reason = {};
};

// chunk: "chat.completion.chunk" with deltas, else "chat.completion" with messages.
std::string ChatReply(const ReplyHead& head, const std::vector<ChatPart>& choices,
                      const Usage* usage, bool chunk, const Tokenizer& tokenizer);

// JSON text. Token bytes may be half a character: those become U+FFFD.
std::string Dump(const nlohmann::ordered_json& json);

// Random hexadecimal digits, for ids.
inline constexpr int kRequestIdDigits = 32;
std::string RandomHex(int digits);

// {"error": {...}} of an HTTP status.
std::string ErrorReply(int status, std::string_view message);

// The characters (not bytes) of UTF-8 text.
int64_t CountCharacters(std::string_view text);

}  // namespace deepinfer
