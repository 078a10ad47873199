// The parameters of one tool call, from the markup between its head and its end (spec 07 section
// 11), as a growing JSON object.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "chat/json_value.h"
#include "chat/literal_scanner.h"

namespace deepinfer {

// Strings that the tool takes as they are go out character by character; other values, and what may
// be a wrapping of the real arguments, when they are complete. A parameter without an end is
// dropped from the arguments as a whole. If its text has been sent, what was sent ends there,
// inside the string. A repeated key is sent again, its last value counts.
//
// Keeps the values of the call. Time is linear in the text.
class CallArguments {
 public:
  // properties: those that the tool declares, by which values are coerced, or null: values stay as
  // written. Must outlive this.
  explicit CallArguments(const JsonValue* properties) : properties_(properties) {}

  // Takes the next text; appends to *sent what it adds to the JSON text.
  void Feed(std::string_view text, std::string* sent);
  // The call has ended, or the output: appends what is still to be sent, and returns the arguments
  // as a whole.
  std::string Finish(std::string* sent);

 private:
  enum class State { kOutside, kHead, kValue, kNextHead };
  // Where a parameter's head can stand: behind the fixed text that begins it.
  enum class HeadStep { kSpace, kName, kKey, kAfterKey, kString, kFlag, kAfterFlag };

  std::string_view FeedOutside(std::string_view text);
  std::string_view FeedHead(std::string_view text, std::string* sent);
  std::string_view FeedValue(std::string_view text, std::string* sent);
  std::string_view FeedNextHead(std::string_view text, std::string* sent);
  // One character of a head: 1 it is complete, 0 it may become one, -1 it is none.
  int StepHead(char c);
  void BeginHead(State state);
  void BeginValue(std::string* sent);
  void AddValue(std::string_view text, std::string* sent);
  void EndValue(std::string* sent);
  void SendKey(std::string_view key, std::string* sent);
  void SendWrapping(std::string* sent);
  const JsonValue* Property(std::string_view key) const;

  const JsonValue* properties_;
  LiteralScanner scanner_;
  State state_ = State::kOutside;

  HeadStep step_ = HeadStep::kSpace;
  size_t matched_ = 0;      // characters of the step's fixed text
  std::string head_;        // of the head, behind its fixed begin
  std::string key_, flag_;  // read from it

  bool streams_ = false;  // the value goes out as it comes
  std::string value_;     // else what there is of it
  JsonValue arguments_;   // complete ones
  std::unordered_map<std::string, size_t> index_;
  bool sent_any_ = false;
  bool wrapping_ = false;  // arguments_ holds one value, not sent: it may be a wrapping
};

}  // namespace deepinfer
