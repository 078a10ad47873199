// Structured output: JSON, JSON schemas and regular expressions as grammars.
#pragma once

#include <memory>
#include <string_view>

#include "grammar/grammar.h"

namespace deepinfer {

// Any JSON object, as response_format json_object asks for.
std::shared_ptr<const Grammar> JsonObjectGrammar();

// JSON text that the schema accepts: everything that matches the grammar is valid. Not all valid
// texts match: properties come in the order in which the schema declares them, objects that declare
// some have no others unless additionalProperties says so, numbers and white space are bounded
// (json_text.h). docs/grammar.md lists the keywords.
//
// Throws Error kInvalid for what is no schema or accepts nothing, and kUnsupported, naming the
// place and the keyword, for what cannot be kept exactly.
std::shared_ptr<const Grammar> JsonSchemaGrammar(std::string_view schema);

// Text that matches from end to end (regex.h).
std::shared_ptr<const Grammar> RegexGrammar(std::string_view pattern);

// The markup of tool calls (spec 07 section 8), one call or more, of the tools of a chat request
// (JSON list of {"function": {"name", "parameters"}}). only: the name of the tool that must be
// called, or empty: any. parallel: more than one call may be made. Parameters keep to the schemas;
// errors as above.
std::shared_ptr<const Grammar> ToolCallGrammar(std::string_view tools, std::string_view only,
                                               bool parallel);

// Calls of any of the tools, or JSON that the schema accepts; schema empty: any object. The JSON
// spells the bar of tags as an escape, so that no string of it can be taken for a tag.
std::shared_ptr<const Grammar> CallsOrJsonGrammar(std::string_view tools, bool parallel,
                                                  std::string_view schema);

}  // namespace deepinfer
