// GrammarStore: the grammars of requests. The same form gives the same object, so that requests
// share its token masks.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "grammar/grammar.h"
#include "server/api_request.h"

namespace deepinfer {

// Any thread may use it.
class GrammarStore {
 public:
  // null for a free answer. Throws Error for a schema that is malformed or not supported.
  std::shared_ptr<const Grammar> Get(const AnswerForm& form);

 private:
  static constexpr size_t kMost = 64;  // kept for requests to come
  std::mutex mutex_;
  std::list<std::pair<AnswerForm, std::shared_ptr<const Grammar>>> recent_;  // latest first
};

}  // namespace deepinfer
