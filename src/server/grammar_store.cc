#include "server/grammar_store.h"

#include <algorithm>

#include "grammar/json_schema.h"

namespace deepinfer {
namespace {

std::shared_ptr<const Grammar> Make(const AnswerForm& form) {
  if (form.kind != AnswerForm::Kind::kCalls && !form.tools.empty())
    return CallsOrJsonGrammar(form.tools, form.several_calls, form.schema);
  switch (form.kind) {
    case AnswerForm::Kind::kFree:
      return nullptr;
    case AnswerForm::Kind::kObject:
      return JsonObjectGrammar();
    case AnswerForm::Kind::kSchema:
      return JsonSchemaGrammar(form.schema);
    case AnswerForm::Kind::kCalls:
      return ToolCallGrammar(form.tools, form.tool, form.several_calls);
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<const Grammar> GrammarStore::Get(const AnswerForm& form) {
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(recent_, [&](const auto& entry) { return entry.first == form; });
    if (found != recent_.end()) {
      recent_.splice(recent_.begin(), recent_, found);
      return found->second;
    }
  }
  const std::shared_ptr<const Grammar> grammar = Make(form);
  const std::lock_guard lock(mutex_);
  recent_.emplace_front(form, grammar);
  if (recent_.size() > kMost) recent_.pop_back();
  return grammar;
}

}  // namespace deepinfer
