// TextSpan: a stretch of prompt text together with what may be read into it.
#pragma once

#include <string>

namespace deepinfer {

struct TextSpan {
  enum class Kind {
    kPlain,    // from a client: a spelling of a special token in it stays text
    kTrusted,  // fixed text of the prompt format: spellings of added tokens become those tokens
    kToken,    // the spelling of exactly one added token, which the tokenizer must have
  };
  Kind kind;
  std::string text;  // UTF-8
};

}  // namespace deepinfer
