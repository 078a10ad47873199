#include "engine/request.h"

#include <iterator>

namespace deepinfer {

SamplingParams DefaultSampling(const GenerationConfig& model) {
  SamplingParams s;
  s.temperature = model.temperature.value_or(s.temperature);
  s.top_p = model.top_p.value_or(s.top_p);
  s.top_k = model.top_k.value_or(s.top_k);
  s.min_p = model.min_p.value_or(s.min_p);
  s.repetition_penalty = model.repetition_penalty.value_or(s.repetition_penalty);
  return s;
}

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
  prompt_logprobs.insert(prompt_logprobs.end(), delta.prompt_logprobs.begin(),
                         delta.prompt_logprobs.end());
  if (delta.finish) finish = delta.finish;
  error += delta.error;
}

}  // namespace deepinfer
