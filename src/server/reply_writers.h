// How the deltas of the engine become the chunks, or the whole reply, of each endpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/output_parser.h"
#include "engine/request.h"
#include "server/api_reply.h"
#include "server/api_request.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// One server-sent event.
std::string Event(const std::string& data);

// Both writers: Begin gives the events in front of everything; Add takes in what is new of an
// answer and gives the event that tells it, if anything is to be told; Whole is the reply of a
// request without stream.

// /v1/completions
class CompletionWriter {
 public:
  // echo: the texts in front of the answers, or empty; with logprobs the engine tells those of the
  // prompts. Needs the tokenizer as long as it lives.
  CompletionWriter(ReplyHead head, const Tokenizer& tokenizer, std::vector<std::string> echo,
                   const std::vector<Request>& requests);

  std::string Begin() const;
  std::string Add(int64_t choice, const Delta& delta, Usage* usage);
  std::string Whole(const Usage& usage) const;
  std::string UsageChunk(const Usage& usage) const;
  const std::string& finish_reason() const { return choices_[0].whole.finish_reason; }

 private:
  struct Choice {
    CompletionPart whole;
    int64_t token_characters;  // of all tokens so far
  };
  std::string Chunk(CompletionPart part) const;

  ReplyHead head_;
  const Tokenizer& tokenizer_;
  std::vector<Choice> choices_;
};

// /v1/chat/completions
class ChatWriter {
 public:
  // Needs the tokenizer as long as it lives.
  ChatWriter(ReplyHead head, const Tokenizer& tokenizer, const ChatCompletionRequest& request);

  std::string Begin() const;
  std::string Add(int64_t choice, const Delta& delta, Usage* usage);
  std::string Whole(const Usage& usage) const;
  std::string UsageChunk(const Usage& usage) const;
  const std::string& finish_reason() const { return choices_[0].whole.finish_reason; }

 private:
  struct Choice {
    std::unique_ptr<OutputParser> parser;
    bool reasons;  // </think> has not come yet
    ChatPart whole = {};
  };
  OutputDelta Parse(Choice* choice, const Delta& delta, Usage* usage) const;
  ChatPart Take(Choice* choice, const OutputDelta& news) const;
  std::string Chunk(ChatPart part) const;

  ReplyHead head_;
  const Tokenizer& tokenizer_;
  bool parallel_calls_;
  TokenId think_open_, think_close_;
  std::vector<Choice> choices_;
};

}  // namespace deepinfer
