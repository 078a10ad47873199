// What the tests of draft tokens share: engines on small models, whole answers, and their equality.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"

namespace deepinfer {

using Tokens = std::vector<TokenId>;

inline const std::string kDemo = DI_SOURCE_DIR "/models/demo";

inline std::string TestCheckpoint(const std::string& name) {
  return DI_SOURCE_DIR "/build/testdata/checkpoints/" + name;
}

// One thread, drafts of a fixed depth.
inline EngineOptions DraftOptions(const std::string& model) {
  EngineOptions o;
  o.model = model;
  o.max_model_len = 192;
  o.max_num_batched_tokens = 48;
  o.max_num_seqs = 4;
  o.threads = 1;
  o.draft_depth = "fixed";
  return o;
}

inline Executor Load(const EngineOptions& engine) {
  return Executor({.engine = engine, .all_logits = false, .progress = {}});
}

// Whole answers, in the order of the requests.
inline std::vector<SequenceResult> Answers(Engine& engine, const std::vector<Request>& requests) {
  std::map<RequestId, SequenceResult> results;
  for (const Request& r : requests) engine.Submit(r);
  while (!engine.idle()) {
    for (const Delta& delta : engine.Step()) results[delta.id].Append(delta);
  }
  std::vector<SequenceResult> ordered;
  for (auto& [id, result] : results) ordered.push_back(std::move(result));
  return ordered;
}

inline std::vector<SequenceResult> Answers(Executor& executor,
                                           const std::vector<Request>& requests) {
  Engine engine(&executor);
  return Answers(engine, requests);
}

inline Request GreedyRequest(Tokens prompt, int64_t max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  r.sampling.temperature = 0;
  return r;
}

inline void ExpectSame(const SequenceResult& a, const SequenceResult& b, const std::string& what) {
  EXPECT_EQ(a.token_ids, b.token_ids) << what;
  EXPECT_EQ(a.text, b.text) << what;
  EXPECT_EQ(a.finish, b.finish) << what;
  EXPECT_EQ(a.error, b.error) << what;
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << what;
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    EXPECT_EQ(a.logprobs[i].id, b.logprobs[i].id) << what << ", token " << i;
    EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob) << what << ", token " << i;
    EXPECT_EQ(a.logprobs[i].rank, b.logprobs[i].rank) << what << ", token " << i;
    EXPECT_EQ(a.logprobs[i].top, b.logprobs[i].top) << what << ", token " << i;
  }
}

}  // namespace deepinfer
