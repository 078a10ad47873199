#include "engine/request.h"

#include <iterator>

namespace deepinfer {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

void SequenceResult::Append(const Delta& delta) {
  token_ids.insert(token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  text += delta.text;
  logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  if (delta.finish) finish = delta.finish;
  error += delta.error;
}

}  // namespace deepinfer
