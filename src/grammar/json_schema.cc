#include "grammar/json_schema.h"

#include <nlohmann/json.hpp>

#include "grammar/schema_rules.h"

namespace deepinfer {
namespace {

using Fragment = GrammarBuilder::Fragment;
using Json = SchemaRules::Json;

// White space may come first; the text ends with the value.
std::shared_ptr<const Grammar> Finish(int32_t value, JsonText* text, GrammarBuilder* builder) {
  return builder->Finish(
      builder->Rule(builder->Sequence({builder->Call(text->Space()), builder->Call(value)})));
}

}  // namespace

std::shared_ptr<const Grammar> JsonObjectGrammar() {
  GrammarBuilder builder;
  JsonText text(&builder, /*in_markup=*/false);
  return Finish(text.Object(), &text, &builder);
}

std::shared_ptr<const Grammar> JsonSchemaGrammar(std::string_view schema) {
  const Json json = ParseDocument(schema, "json_schema");
  GrammarBuilder builder;
  SchemaRules rules(json, "json_schema", /*in_markup=*/false, &builder);
  return Finish(rules.Rule(json, ""), &rules.text(), &builder);
}

std::shared_ptr<const Grammar> RegexGrammar(std::string_view pattern) {
  GrammarBuilder builder;
  const Spelling as_is = [](GrammarBuilder* b, const CodePoints& set) {
    return b->Characters(set);
  };
  return builder.Finish(
      builder.Rule(RegexFragment(pattern, /*whole=*/true, as_is, "regex", &builder)));
}

}  // namespace deepinfer
