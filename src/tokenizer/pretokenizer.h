// The released model's pre-tokeniser as a scanner.
#pragma once

#include <string_view>
#include <vector>

namespace deepinfer {

// Cuts text (valid UTF-8) into the pieces that BPE works on; concatenated they are the text. The
// three splits of tokenizer.json in order, each applied to every piece of the one before (spec 07
// section 3):
//   1  \p{N}{1,3}
//   2  [U+4E00-9FA5 U+3040-30FF]+
//   3  a  one ASCII punctuation character, [A-Za-z]+
//      b  [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
//      c  \x20?[\p{P}\p{S}]+[\r\n]*
//      d  \s*[\r\n]+
//      e  \s+(?!\S)
//      f  \s+
// Leftmost match, alternatives in order; what lies between two matches is a piece too. Linear time.
std::vector<std::string_view> PreTokenize(std::string_view text);

}  // namespace deepinfer
