// Regular expressions as fragments of a grammar.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "grammar/grammar.h"

namespace deepinfer {

// How one character of a set is spelled in the text: as it is, or escaped in a JSON string.
using Spelling = std::function<GrammarBuilder::Fragment(GrammarBuilder*, const CodePoints&)>;

// What Python's and JavaScript's re agree on: literals, . [...] [^...] \d \w \s \D \W \S and
// escaped punctuation, \n \r \t \f \v \xHH \uHHHH, (...) (?:...) | * + ? {m} {m,} {m,n}, also lazy;
// ^ and $ at the ends of the whole. Classes by letter mean the ASCII characters. `whole`: the text
// must match from end to end; else it must contain a match, and anything may stand around it where
// ^ or $ does not forbid it. Throws Error kInvalid for what is malformed and kUnsupported naming
// what is not in this list; `what` stands in front of the message.
GrammarBuilder::Fragment RegexFragment(std::string_view pattern, bool whole,
                                       const Spelling& spelling, const std::string& what,
                                       GrammarBuilder* builder);

}  // namespace deepinfer
